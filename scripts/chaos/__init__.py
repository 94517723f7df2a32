"""Kills runs and damages their files, again and again, and looks whether any ends with other numbers."""
