"""Every relaxed top-k mask of `ops` under one protocol: its properties, the quality of its gradient, its cost."""
