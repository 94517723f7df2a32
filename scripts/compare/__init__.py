"""Runs side by side: a page, or a table in the terminal."""
