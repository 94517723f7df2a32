"""Every operator against the oracle: values and first derivatives of random problems.

Rows are of every kind that is hard: ties, zeros, infinities, NaN, entries of all sizes and far from 0, any ``k`` and
``lam``, 0 included. An ordinary run tries settings in which something has been wrong, and those that matter most. With
the variable FUZZ it tries that many problems besides, in settings that hypothesis draws from SEED.
"""

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
_CALL, _ENTRIES = 16384, 60_000
_ALL = sum(operator.share for operator in OPERATORS.values())
_SETTINGS = 4  # of a test

ALWAYS = (
    Setting("topk_mask", n=6, dtype="float16", layout="several", density=True, where=True),
    Setting("topk_mask", n=40, rows=192, dtype="float64", layout="all"),
    Setting("topk_mask", n=40, rows=192, p=4 / 3, layout="vmap", optimized=True),
    Setting("topk_mag", n=6, p=1.1, debias=True, where=True, layout="columns"),
    Setting("topk_mag", n=10, rows=192, debias=True, optimized=True),
    Setting("topk_mag", n=10, rows=192, p=1.2, debias=True, solver="pav"),
    Setting("topk_mask", n=5, rows=192, p=1.7, where=True, solver="pav"),
    Setting("topk_mag", n=5, rows=32, p=4 / 3, layout="vmap", where=True, solver="kernel"),
    Setting("relaxed_topk", n=5, dtype="float64", phi="abs"),
    Setting("relaxed_topk", n=10, rows=192, dtype="float64", p=1.7, phi="exp"),
    Setting("soft_topk", n=10, rows=192, dtype="float64", p=4 / 3, where=True, layout="columns"),
    Setting("sparsemax", n=6),
    Setting("hard_topk_mask", n=40, rows=192),
    Setting("hard_topk_mag", n=8, where=True),
    Setting("topk_mag_tree", n=12, groups="blocks"),
    Setting("topk_mag_tree", n=12, p=1.5, groups="runs", debias=True),
    Setting("topk_mask_tree", n=12, groups="channels"),
    Setting("hard_topk_mask_tree", n=24, groups="blocks"),
    Setting("hard_topk_mag_tree", n=12, groups="blocks", density=True),
    Setting("relaxed_topk_value", n=5, p=1.5, phi="half_square", where=True),
    Setting("topk_fenchel_young_loss", n=6, dtype="bfloat16", p=1.5, target="smooth", layout="columns"),
    Setting("topk_fenchel_young_loss", n=10, rows=192, dtype="float64", p=4 / 3, where=True),
    Setting("knapsack_mask", n=6, p=1.5, where=True),
    Setting("topk_plan", n=6, rows=16, dtype="float64"),
    Setting("soft_sort", n=5, dtype="float64", p=4 / 3),
    Setting("soft_rank", n=4, p=1.5, layout="vmap"),
    Setting("project_permutahedron", n=5, layout="columns"),
)


def check(tally, operator):
    """Nothing was wrong, and enough had one right answer."""
    assert not tally.failures, "\n".join(tally.failures)
    for name in ("value", *OPERATORS[operator].arguments):
        # A plan has fewest, in k: one in eleven.
        assert tally.judged[name] > 0.08 * tally.tried, name


def test_every_operator_is_tried():
    assert {setting.operator for setting in ALWAYS} == set(OPERATORS)


@pytest.mark.parametrize("setting", ALWAYS, ids=lambda setting: setting.operator)
def test_values_and_derivatives(setting):
    tally = Tally()
    attempt(tally, setting, SEED)
    check(tally, setting.operator)


def parts():
    """Operators, and which of how many tests of them it is, into which a long run divides what it tries."""
    for name, operator in OPERATORS.items() if COUNT else ():
        # Settings cost their compilation whatever is tried of them: few problems of many, many of few.
        number = max(1, math.isqrt(COUNT) * operator.share // (2 * _ALL * _SETTINGS))
        yield from (pytest.param(name, part, number, id=f"{name}-{part}") for part in range(number))


@pytest.mark.parametrize(("operator", "part", "number"), list(parts()))
def test_settings_that_are_drawn(operator, part, number):
    wanted = math.ceil(math.ceil(COUNT * OPERATORS[operator].share / _ALL) / number)
    tally, turn = Tally(), 0
    while tally.tried < wanted:

        @hypothesis.seed(SEED * 1_000_003 + 1009 * part + turn)
        @hypothesis.settings(
            max_examples=_SETTINGS, derandomize=False, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        # What hypothesis draws first is 0 in every part: other numbers of it, then.
        @given(settings(operator, _CALL), st.integers(0, 2**32 - 1).map((1009 * part + turn).__add__))
        def one(setting: Setting, seed: int) -> None:
            affordable = 1 if setting.known else max(1, _ENTRIES // (setting.rows * setting.n))
            attempt(tally, setting, seed, min(affordable, math.ceil(wanted / _SETTINGS / setting.rows)))

        one()
        turn += 1
    check(tally, operator)
