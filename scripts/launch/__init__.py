"""Starts runs on many machines, one or a whole sweep, and starts them again until they are done."""
