"""The table and the figures of the task."""
