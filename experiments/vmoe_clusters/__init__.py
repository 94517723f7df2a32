"""A task with a known best assignment of tokens to experts: clusters of tokens, with a linear map for each cluster."""
