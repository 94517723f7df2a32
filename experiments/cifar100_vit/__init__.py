"""Fine-tuning a vision transformer on CIFAR-100 with a top-k loss."""

RANK = "rank"  # what runs keep of each image: how many classes are ahead of its label
