"""Every relaxed top-k mask of `ops` under one protocol: what it is like, what its gradient is worth, what it costs."""
