"""The answers of the committed results, a line a claim of the paper, and the tables of the READMEs."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
