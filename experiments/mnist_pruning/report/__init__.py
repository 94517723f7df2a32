"""The table and the figures of the pruning experiment."""
