"""The files that a run leaves behind: its directory, rows, last row, and what it ran on."""
