"""Draws settings with hypothesis and tries them: few in an ordinary run of the tests, as many as asked by `make fuzz`.

The variables FUZZ and SEED say how many problems are tried of all operators, and which; PROBLEM is a line that
reproduces one.
"""

import dataclasses
import math
import os

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from tests.ops.problems.judge import Tally, attempt
from tests.ops.problems.operators import OPERATORS
from tests.ops.problems.setting import Setting, settings

COUNT, SEED = int(os.environ.get("FUZZ", 0)), int(os.environ.get("SEED", 0))
# Entries of a compiled call, and of all calls of a setting: the oracle's time is proportional to them.
_CALL, _ENTRIES = (16384, 60_000) if COUNT else (384, 0)
_ALL = sum(operator.share for operator in OPERATORS.values())
_SETTINGS = 4  # of a test, in a long run
# Exponents, layouts and options in which something has been wrong; what hypothesis draws first is plain.
ALWAYS = (
    Setting("topk_mask", n=5, p=4 / 3, layout="vmap"),
    Setting("topk_mask", n=6, layout="several", density=True, where=True),
    Setting("topk_mag", n=6, p=1.1, debias=True, where=True, layout="columns"),
    Setting("topk_mag", n=6, layout="all", p=1.5),
    Setting("relaxed_topk", n=5, dtype="float64", phi="abs"),
    Setting("topk_plan", n=6, rows=16, dtype="float64"),
    Setting("knapsack_mask", n=6, p=1.5, where=True),
    Setting("topk_mag_tree", n=12, groups="blocks"),
    Setting("topk_mag_tree", n=12, p=1.5, groups="runs", debias=True),
    Setting("topk_mask_tree", n=12, groups="channels"),
    Setting("hard_topk_mag_tree", n=12, groups="blocks", density=True),
    Setting("relaxed_topk_value", n=5, p=1.5, phi="half_square", where=True),
    Setting("topk_fenchel_young_loss", n=6, dtype="bfloat16", p=1.5, target="smooth", layout="middle"),
    Setting("topk_sum", n=5, where=True),
    Setting("soft_rank", n=4, p=1.5),
    Setting("hard_topk_mag", n=8, where=True),
)


def _wanted(operator: str) -> int:
    return math.ceil(COUNT * OPERATORS[operator].share / _ALL)


def each_of(*operators: str) -> pytest.MarkDecorator:
    """Parametrises a test with these operators, and with the parts into which a long run divides what it tries."""
    cases = []
    for operator in operators:
        # Settings cost their compilation whatever is tried of them: few problems of many, many of few.
        number = max(1, math.isqrt(COUNT) * OPERATORS[operator].share // (2 * _ALL * _SETTINGS)) if COUNT else 1
        cases += [pytest.param(operator, part, number, id=f"{operator}-{part}") for part in range(number)]
    return pytest.mark.parametrize(("operator", "part", "parts"), cases)


def try_problems(operator: str, part: int, parts: int, record_property) -> None:
    """Tries this part of the problems of an operator, and adds what came of it to the report.

    Raises:
      AssertionError: one was wrong, or too few had one right answer.
    """
    wanted = math.ceil(_wanted(operator) / parts)
    tally = Tally()
    turn = 0
    if not part:
        for setting in ALWAYS:
            if setting.operator == operator:
                attempt(tally, setting, SEED)
    few = 0 if tally.tried else 1  # in an ordinary run, where compilation is what costs
    while (few and not turn) or tally.tried < wanted:
        first = 1009 * part + turn

        @hypothesis.seed(SEED * 1_000_003 + first)
        @hypothesis.settings(
            max_examples=_SETTINGS if COUNT else few,
            derandomize=False,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        # What hypothesis draws first is 0 in every part: other numbers of it, then.
        @given(settings(operator, _CALL), st.integers(0, 2**32 - 1).map(first.__add__))
        def one(setting: Setting, seed: int) -> None:
            affordable = 1 if setting.known else max(1, _ENTRIES // (setting.rows * setting.n))
            batches = min(affordable, math.ceil(wanted / _SETTINGS / setting.rows)) if COUNT else 1
            attempt(tally, setting, seed, batches)

        one()
        turn += 1
    record_property("problems", {"operator": operator} | dataclasses.asdict(tally))
    assert not tally.failures, "\n".join(tally.failures)
    for name in ("value", *OPERATORS[operator].arguments):
        assert tally.judged[name] > 0.1 * tally.tried, name
