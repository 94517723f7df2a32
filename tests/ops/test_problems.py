"""Operators against the oracle in the dtypes, exponents and options that matter: values and first derivatives.

Rows are of every kind that is hard: ties, zeros, infinities, NaN, entries of all sizes and far from 0, any ``k`` and
``lam``, 0 included. Settings that ``problems/trying.py`` always tries are not repeated here.
"""

import pytest

from tests.ops.problems.judge import Tally, attempt
from tests.ops.problems.setting import Setting

WIDE = {"dtype": "float64", "rows": 192}
SETTINGS = (
    Setting("topk_mask", 40, **WIDE),
    Setting("topk_mask", 40, rows=192, p=4 / 3, optimized=True),
    Setting("topk_mask", 16, dtype="float16", where=True),
    Setting("topk_mag", 10, rows=192, debias=True, optimized=True),
    Setting("topk_mag", 12, p=1.5, debias=True, solver="pav", **WIDE),
    Setting("relaxed_topk", 10, p=1.5, phi="exp", **WIDE),
    Setting("soft_topk", 10, p=4 / 3, where=True, **WIDE),
    Setting("hard_topk_mask", 40, rows=192),
    Setting("hard_topk_mask_tree", 24, groups="blocks"),
    Setting("topk_fenchel_young_loss", 10, p=4 / 3, where=True, **WIDE),
    Setting("soft_sort", 5, p=4 / 3, dtype="float64"),
)


def named(setting):
    options = {"debias": setting.debias, "where": setting.where, "optimized": setting.optimized}
    parts = (setting.operator, setting.groups, setting.phi, setting.target, setting.solver, setting.dtype)
    return "-".join(
        [*(part for part in parts if part), f"{setting.p:.3g}", *(name for name in options if options[name])]
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=named)
def test_values_and_derivatives(setting):
    tally = Tally()
    attempt(tally, setting, seed=0)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.judged["value"] > 0.5 * setting.rows
    assert min(tally.judged.values()) > 0.3 * setting.rows
