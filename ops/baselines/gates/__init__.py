"""Random gates with exact zeros: the second of the paper's companion notes."""
