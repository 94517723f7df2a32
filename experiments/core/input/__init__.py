"""Sources of examples, and how batches are made of them."""
