"""A task where routing decides, with a known best assignment: tokens of clusters, and a linear map for each cluster."""
