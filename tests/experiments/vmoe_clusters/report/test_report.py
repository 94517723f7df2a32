"""Table and figures of the task, of runs with known numbers."""

import json

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe_clusters.report import figures, naming, table
from scripts.compare.identities import fields
from tests.scripts.workdirs import write_clusters


@pytest.fixture
def results(tmp_path):
    """At one noise, with one candidate."""
    write_clusters(tmp_path / "a", "best", [1.0, 2.0, 3.0], [[100.0] * 3] * 3)
    write_clusters(tmp_path / "b", "hard", [5.0, 6.0, 10.0], [[10.0] * 3, [50.0, 72.0, 50.0], [72.0, 75.0, 71.9]])
    write_clusters(tmp_path / "c", "relaxed", [4.0, 4.0, 7.0], [[10.0] * 3, [60.0, 75.0, 80.0], [75.0] * 3])
    write_clusters(tmp_path / "d", "relaxed", [9.0] * 3, [[10.0] * 3] * 2, split="validation")
    return tmp_path


def test_excess_differences_power_and_steps(results, capsys):
    table.make(results)
    rows = {row["name"]: row for row in json.loads((results / "table.json").read_text())["final"]}
    assert list(rows) == ["best", "hard", "relaxed"]
    assert rows["hard"]["excess"]["per_seed"] == [4.0, 4.0, 7.0]
    assert rows["best"]["excess"] is rows["best"]["minus_hard"] is rows["hard"]["minus_hard"] is None
    assert rows["relaxed"]["minus_hard"]["per_seed"] == [-1.0, -2.0, -3.0]
    # Two degrees of freedom: t(0.975) = 4.3027, t(0.8) = 1.0607; the standard error is 1 / sqrt(3).
    assert rows["relaxed"]["detectable"] == pytest.approx((4.3027 + 1.0607) / np.sqrt(3), rel=1e-4)
    assert rows["hard"]["detectable"] is None
    assert rows["hard"]["steps_to_reach"]["per_seed"] == [100.0, 50.0, None]  # 72 is 90 % of 80
    assert rows["relaxed"]["steps_to_reach"]["per_seed"] == [100.0, 50.0, 50.0]
    text = capsys.readouterr().out
    assert "At noise 0.3, 100 steps: the true centres recover 80.00 ± 0.00 %." in text
    assert "| router | setting | noise 0.3, 100 steps |" in text
    assert (
        "| relaxed expert choice, p = 2, of the logits, 50 slots | learning rate 0.03, lam = 1 | +3.00 ± 2.48 |" in text
    )
    assert "| -2.00 ± 2.48 | 3.10 | 75.00 ± 0.00 | 67 | 25.0 | 0.0 | 3 | 0 |" in text
    assert "| 75 (1) | " in text
    assert "### Validation: noise 0.3" in text


def test_another_task_of_the_same_noise_has_no_part_in_differences(results):
    write_clusters(results / "f", "relaxed", [4.0, 4.0, 7.0], [[10.0] * 3, [60.0] * 3, [75.0] * 3], batch_size=7)
    table.make(results)
    rows = {row["run"]: row for row in json.loads((results / "table.json").read_text())["final"]}
    assert rows["f"]["minus_hard"] is rows["f"]["excess"] is None
    assert rows["c"]["minus_hard"]["per_seed"] == [-1.0, -2.0, -3.0]


def test_figures_are_of_the_numbers_and_the_same_bytes_every_time(results):
    write_clusters(results / "e", "hard", [7.0] * 3, [[10.0] * 3, [30.0] * 3, [40.0] * 3], task__noise=0.4)
    first = {path: path.read_bytes() for path in figures.make(results)}
    assert {path.name for path in first} == {
        f"{name}.{end}" for name in ("excess", "recovery") for end in ("png", "svg")
    }
    assert first == {path: path.read_bytes() for path in figures.make(results)}
    final = naming.of_split(naming.load(results)[0], "test")
    with mpl.rc_context(STYLE):
        over_best, over_hard = figures.excess(final).axes
        low, high = figures.recovery(final).axes
    drawn = [[bars.lines[0].get_ydata().tolist() for bars in axes.containers] for axes in (over_best, over_hard)]
    assert drawn == [[[5.0], [3.0]], [[-2.0]]]  # hard and relaxed; relaxed; of noise 0.4 there is no best
    curve, *_ = low.get_lines()
    np.testing.assert_allclose(curve.get_ydata(), [10, 172 / 3, 218.9 / 3])
    assert (low.get_title(), high.get_title()) == ("noise 0.3, 100 steps", "noise 0.4, 100 steps")


def test_the_first_table_has_a_column_for_each_noise_and_number_of_steps(results):
    for name, noise, rows in (("near", 0.1, 3), ("long", 0.3, 5)):
        write_clusters(results / f"{name}-best", "best", [1.0] * 3, [[100.0] * 3] * rows, task__noise=noise)
        write_clusters(results / f"{name}-relaxed", "relaxed", [1.5, 2.0, 2.5], [[90.0] * 3] * rows, task__noise=noise)
    table.make(results)
    lines = (results / "table.md").read_text().splitlines()
    assert lines[2] == "| router | setting | noise 0.1, 100 steps | noise 0.3, 100 steps | noise 0.3, 200 steps |"
    relaxed, hard = lines[4:6]
    assert relaxed.endswith("| learning rate 0.03, lam = 1 | +1.00 ± 1.24 | +3.00 ± 2.48 | +1.00 ± 1.24 |")
    assert hard.endswith("| learning rate 0.03 | - | +5.00 ± 4.30 | - |")


def test_what_a_router_does_not_read_tells_no_runs_apart(results):
    best, hard, relaxed = (fields(run) for run in naming.of_split(naming.load(results)[0], "test"))
    assert "router.lam.start" not in best.keys() | hard.keys()
    assert relaxed.keys() >= {"router.lam.start", "router.p", "router.score", "task.noise"}
    assert "router.limit" not in relaxed


def test_without_runs_there_is_no_figure(tmp_path, capsys):
    assert figures.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: no finished runs below {tmp_path}\n"
