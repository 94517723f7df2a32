"""What every experiment shares: command line, data, training loop, checkpoints, metrics."""
