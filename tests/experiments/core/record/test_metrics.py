"""Rows of metrics: strict JSON, and no half rows."""

import json

import numpy as np
import pytest

from experiments.core.record import metrics


def row(epoch: int) -> metrics.Row:
    return {"epoch": epoch, "step": 10 * epoch, "test_error": [1.0, None]}


@pytest.mark.parametrize("end", ["", '{"epoch": 2, "st', "{"])
def test_a_last_line_cut_short_is_left_out(tmp_path, end):
    path = tmp_path / "metrics.jsonl"
    assert metrics.read(path) == []
    path.write_text(json.dumps(row(0)) + "\n" + json.dumps(row(1)) + "\n" + end)
    assert metrics.read(path) == [row(0), row(1)]


def test_a_writer_keeps_the_rows_given_and_drops_the_others(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(3)) + '{"epo')
    writer = metrics.Writer(path, [row(0)])
    writer.append(row(1))
    writer.close()
    assert metrics.read(path) == [row(0), row(1)]


def test_values_of_diverged_seeds_and_what_is_not_finite_become_null():
    measured = {"loss": np.float32([0.1, np.nan, 3]), "layers": {"1": np.float32([1, 2, np.inf])}}
    rows = metrics.per_seed(measured, diverged=np.array([False, False, True]))
    assert json.dumps(rows, allow_nan=False) == ('{"loss": [0.1, null, null], "layers": {"1": [1.0, 2.0, null]}}')


def test_flatten_joins_names():
    assert dict(metrics.flatten({"a": [1], "b": {"c": [2]}})) == {"a": [1], "b/c": [2]}
