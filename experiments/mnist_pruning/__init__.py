"""Pruning an MLP while it trains (Section 6, Figure 5 and Appendix C.1 of the paper)."""
