"""The figures of the paper that are about the operators, recomputed, and one of our own; one file each."""
