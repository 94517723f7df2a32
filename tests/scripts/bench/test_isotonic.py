"""Times and errors of the ways to the mask of one row, of which Figure 4 is drawn."""

import ops
from scripts.bench import isotonic
from scripts.bench.timing import Contest
from scripts.paper_figures import solvers


def test_rows_have_times_and_errors(monkeypatch):
    shape = isotonic.shape_of(200)
    assert isotonic.SOLVERS["PAV"] is ops.isotonic.PAV
    for name in isotonic.SOLVERS.keys() - {"scalar equation", "Dykstra, 10 iterations"}:  # they take long to compile
        monkeypatch.delitem(isotonic.SOLVERS, name)
    errors = isotonic.measure_errors(shape, [0.1], Contest())["rows"]
    monkeypatch.setattr(isotonic, "_LONGEST", 100)  # of a row that isotonic solvers are timed on
    times = isotonic.measure_times(shape, 0.05, Contest())["rows"]
    assert [row["way"] for row in times] == ["scalar equation", "lax.top_k", "jnp.sort"]
    assert all(row["lower_quartile_ms"] <= row["median_ms"] <= row["upper_quartile_ms"] for row in times)
    batches = isotonic.measure_batch(shape._replace(batch=2), 0.05, Contest())["batches"]
    assert [(row["way"], row["batch"]) for row in batches] == [(row["way"], 2) for row in times]
    assert {(row["n"], row["k"], row["lam"]) for row in errors} == {(200, 20, 0.1)}
    error = {row["way"]: row["max_abs_error"] for row in errors}
    assert set(error) == set(isotonic.SOLVERS)
    assert error["scalar equation"] < 1e-5
    assert error["Dykstra, 10 iterations"] > 1e-5


def test_wrong_regressions_are_left_out(monkeypatch):
    monkeypatch.setitem(isotonic.REGRESSIONS, "identity", lambda x: lambda: x)
    found = isotonic.measure_regression(50, 0.05, Contest())
    assert {"ops", "SciPy", "scikit-learn"} <= {row["package"] for row in found["regressions"]}
    assert "others than ours" in found["failed"]["identity"]


def test_every_way_is_drawn():
    assert [name for name, _ in isotonic._programs(isotonic.shape_of(10), 0.1)] == [
        *isotonic.SOLVERS,
        "lax.top_k",
        "jnp.sort",
    ]
    assert {*isotonic.SOLVERS, "lax.top_k", "jnp.sort"} == set(solvers.LOOKS)


def test_k_is_28_of_400_as_in_the_paper():
    assert [isotonic.shape_of(n).k for n in (300, 400, 1000)] == [30, 28, 100]
