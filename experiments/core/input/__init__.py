"""Where examples come from, and how batches of them are made."""
