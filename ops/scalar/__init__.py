"""The scalar equation behind every relaxed top-k operator: its solution and its derivatives."""
