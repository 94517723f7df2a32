"""The paper's figures of the operators, recomputed."""
