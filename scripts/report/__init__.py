"""Answers to the claims of the paper from the committed results, and the tables of the READMEs."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
