"""Runs that are killed and damaged, again and again: `make chaos`."""
