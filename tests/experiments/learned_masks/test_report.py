"""The tables of masks: what they compare."""

from experiments.learned_masks import report
from scripts.report import RESULTS


def test_masks_are_compared_at_equal_budgets():
    """Edge-popup was trained with a fifth kept alone."""
    (lines,) = report.blocks(RESULTS).values()
    headers = [line for line in lines if " kept | " in line]
    assert ["minus edge-popup" in header for header in headers] == ["20 %" in header for header in headers]
    assert len(headers) == 3
