"""Runs side by side: one page, its plots as files, or a table in the terminal."""
