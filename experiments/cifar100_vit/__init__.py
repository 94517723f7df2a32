"""Fine-tuning a vision transformer on CIFAR-100 with a top-k loss."""
