"""One training loop: what an experiment hands over, the compiled step, devices, checkpoints, evaluation, progress."""
