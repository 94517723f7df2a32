"""The page of the committed results, which opens with every claim of the paper."""
