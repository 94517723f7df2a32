"""Compares runs: a page, or a table in the terminal."""
