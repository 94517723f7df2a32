"""What experiments on images share: the vision transformer, and its public weights."""
