"""The table and the figures of the fine-tuning experiment."""
