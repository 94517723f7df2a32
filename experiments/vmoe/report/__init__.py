"""The table and the figure of the V-MoE experiment."""
