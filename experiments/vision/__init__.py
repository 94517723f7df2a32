"""Shared by experiments on images: the vision transformer, and its public weights."""
