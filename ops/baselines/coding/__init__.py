"""Sparse coding: the operators that the first of the paper's companion notes compares."""
