"""Pruning a network while it trains: an MLP (Section 6, Figure 5 and Appendix C.1), and a vision transformer."""
