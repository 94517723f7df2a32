"""Scripts that read results and measure; they never train."""
