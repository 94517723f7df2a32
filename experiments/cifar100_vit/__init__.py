"""Fine-tuning a vision transformer on CIFAR-100 with a top-k loss."""

RANK = "rank"  # the name of an array that runs keep: for each image the number of classes ahead of its label
