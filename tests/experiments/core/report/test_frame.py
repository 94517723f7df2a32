"""Metrics by run and seed, and differences of runs at the same seeds, by hand."""

import numpy as np
import pytest

from experiments.core.report.frame import detectable, difference, final, first_where, frame, history, minus, sign_test
from experiments.core.report.results import Run

NAN = float("nan")


def run_of(name, seeds, **finals):
    """A run with these metrics at its end, and a row with the error halved before."""
    rows = [{"epoch": 1, "error": [value and 2 * value for value in finals["error"]]}, {"epoch": 2} | finals]
    summary = {"seeds": seeds, "diverged": 0, "final": {key: {"per_seed": its} for key, its in finals.items()}}
    return Run(name, {"p": 2.0} | ({"layers": [1]} if name == "a" else {}), rows, summary)


A = run_of("a", [2, 1, 0], error=[4.0, None, 1.0], **{"block_1/x": [1.0, 2.0, None], "block_2/x": [3.0, 6.0, 4.0]})
B = run_of("b", [0, 2], error=[3.0, 10.0])
RUNS = frame([A, B], lambda run: {"upper": run.name.upper()})


def test_a_frame_has_fields_and_columns():
    assert RUNS[["p", "upper", "seeds"]].to_numpy().tolist() == [[2.0, "A", 3], [2.0, "B", 2]]
    assert RUNS["layers"].to_list() == [[1], None]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("error", [[4.0, NAN, 1.0], [10.0, NAN, 3.0]]),
        ("block_*/x", [[2.0, 4.0, NAN], [NAN] * 3]),  # means over blocks, where all have a value
        (lambda run: [run.final("error")] * 2, [[4.0, NAN, 1.0], [10.0, NAN, 3.0]]),
    ],
)
def test_metrics_are_by_seed(metric, expected):
    np.testing.assert_array_equal(final(RUNS, metric)[[2, 1, 0]], expected)


def test_runs_are_paired_by_seed():
    over = minus(RUNS, {"a": B, "b": None}, "error")
    np.testing.assert_array_equal(over[[2, 1, 0]], [[-6.0, NAN, -2.0], [NAN] * 3])
    found = difference(A, B, "error")
    assert (found["per_seed"], found["mean"]) == ([-6.0, None, -2.0], -4.0)
    assert detectable(found) == pytest.approx(2 * (12.706205 + 1.376382), rel=1e-6)
    assert sign_test(over.loc["a"]) == (0, 2, 0.5)


def test_the_first_epoch_below_an_error():
    np.testing.assert_array_equal(first_where(history(A, "error") <= 4.0), [2.0, NAN, 1.0])
