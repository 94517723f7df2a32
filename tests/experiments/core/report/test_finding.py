"""The rules by which comparisons become an answer."""

import pytest

from experiments.core.report.finding import answer, in_every_case


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ([1], "yes"),
        ([1, 1, 0], "yes"),
        ([1, 0], "no"),  # half of them show nothing
        ([0, 0], "no"),
        ([-1, -1], "no"),
        ([1, -1], "mixed"),
        ([1] * 8 + [-1] * 8, "mixed"),
        ([1] * 8 + [-1], "mixed"),
        ([1, -1, -1], "no"),  # one win among losses
        ([1, -1, 0, 0, 0, 0], "no"),
        ([1] * 3 + [-1] * 13, "no"),
    ],
)
def test_mixed_needs_wins_and_losses_and_one_win_among_losses_is_no(signs, expected):
    assert answer(signs) == expected


def test_one_counterexample_refutes_a_claim_about_every_case():
    assert in_every_case([True, True]) == "yes"
    assert in_every_case([True, False]) == "no"
