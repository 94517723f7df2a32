"""Ways to prune that the literature calls strong, each true to its paper but for what its function says."""
