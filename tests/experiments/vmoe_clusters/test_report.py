"""Tables, figures and the finding of the task, of runs with known numbers."""

import matplotlib as mpl
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe_clusters import report
from tests.experiments.vmoe import tables
from tests.scripts.workdirs import write_clusters


@pytest.fixture(autouse=True)
def _fresh():
    report.load.cache_clear()


@pytest.fixture
def results(tmp_path):
    """Runs at one noise, with one candidate."""
    write_clusters(tmp_path / "a", "best", [1.0, 2.0, 3.0], [[100.0] * 3] * 3)
    write_clusters(tmp_path / "b", "hard", [5.0, 6.0, 10.0], [[10.0] * 3, [50.0, 72.0, 50.0], [72.0, 75.0, 71.9]])
    write_clusters(tmp_path / "c", "relaxed", [4.0, 4.0, 7.0], [[10.0] * 3, [60.0, 75.0, 80.0], [75.0] * 3])
    write_clusters(tmp_path / "d", "relaxed", [9.0] * 3, [[10.0] * 3] * 2, split="validation")
    return tmp_path


def rows_of(directory, heading):
    """The cells of a table by router, after it has been made."""
    report.make(directory)
    lines = (directory / "table.md").read_text().splitlines()
    return {row.pop("router"): row for row in tables.read(lines, heading)}


def test_excess_differences_power_and_steps(results):
    rows = rows_of(results, "Test at noise 0.3, 100 steps")
    assert list(rows) == ["the best assignment", "hard, gates", "relaxed, logits"]
    shown = ("excess", "minus hard", "detectable", "recovered, %", "steps to 90 %")
    best, hard, relaxed = ([row[name] for name in shown] for row in rows.values())
    assert best == ["-", "-", "-", "100.00 ± 0.00", "0"]
    assert hard == ["+5.00 ± 4.30", "-", "-", "72.97 ± 4.38", "75 (1)"]  # 72 is 90 % of 80, 71.9 is not
    # Two degrees of freedom: t(0.975) = 4.3027, t(0.8) = 1.0607; the standard error is 1 / sqrt(3).
    assert relaxed == ["+3.00 ± 2.48", "-2.00 ± 2.48", "3.10", "75.00 ± 0.00", "67"]
    assert "The true centres recover 80.00 ± 0.00 %." in (results / "table.md").read_text()
    assert list(rows_of(results, "Validation: noise 0.3")) == ["relaxed, logits"]


def test_another_task_of_the_same_noise_has_no_part_in_differences(results):
    write_clusters(results / "f", "relaxed", [4.0, 4.0, 7.0], [[10.0] * 3, [60.0] * 3, [75.0] * 3], batch_size=7)
    final = report.of_split(report.PRESENTATION.load(results)[0], "test")
    for router in ("best", "hard"):
        references = report.PRESENTATION.references(final, router)
        assert references["f"] is None
        assert references["c"].name == ("a" if router == "best" else "b")


def test_the_first_table_has_a_column_for_each_noise_and_number_of_steps(results):
    for name, noise, rows in (("near", 0.1, 3), ("long", 0.3, 5)):
        write_clusters(results / f"{name}-best", "best", [1.0] * 3, [[100.0] * 3] * rows, task__noise=noise)
        write_clusters(results / f"{name}-relaxed", "relaxed", [1.5, 2.0, 2.5], [[90.0] * 3] * rows, task__noise=noise)
    first = rows_of(results, "Test: loss over that of the best assignment, %")
    assert first == {
        "relaxed, logits, lam = 1": {
            "noise 0.1, 100 steps": "+1.00 ± 1.24",
            "noise 0.3, 100 steps": "+3.00 ± 2.48",
            "noise 0.3, 200 steps": "+1.00 ± 1.24",
        },
        "hard, gates": {
            "noise 0.1, 100 steps": "-",
            "noise 0.3, 100 steps": "+5.00 ± 4.30",
            "noise 0.3, 200 steps": "-",
        },
    }
    again = {"optimizer__learning_rate": 0.1, "task__noise": 0.1}
    write_clusters(results / "again", "relaxed", [2.0, 2.0, 2.0], [[90.0] * 3] * 3, **again)
    second = rows_of(results, "Test: loss over that of the best assignment, %")
    assert second["relaxed, logits, lam = 1"]["noise 0.1, 100 steps"] == "+1.00 ± 1.24"
    assert second["relaxed, logits, lam = 1, learning rate 0.1"]["noise 0.1, 100 steps"] == "+1.00 ± 0.00"


def test_figures_are_of_the_numbers_and_the_same_bytes_every_time(results):
    write_clusters(results / "e", "hard", [7.0] * 3, [[10.0] * 3, [30.0] * 3, [40.0] * 3], task__noise=0.4)
    fast = {"optimizer__learning_rate": 0.1, "task__noise": 0.4}
    write_clusters(results / "f", "relaxed", [7.0] * 3, [[10.0] * 3, [30.0] * 3, [40.0] * 3], **fast)
    first = {path: path.read_bytes() for path in report.make(results)}
    assert {path.name for path in first} == {"excess.png", "excess.svg", "table.md"}
    assert first == {path: path.read_bytes() for path in report.make(results)}
    final = report.of_split(report.PRESENTATION.load(results)[0], "test")
    with mpl.rc_context(STYLE):
        over_best, over_hard = report.excess(final).axes
    drawn = [[bars.lines[0].get_ydata().tolist() for bars in axes.containers] for axes in (over_best, over_hard)]
    assert drawn == [[[5.0], [3.0]], [[-2.0, 0.0]]]  # hard and relaxed; relaxed; of noise 0.4 there is no best


def test_without_runs_there_is_no_figure(tmp_path):
    assert [path.name for path in report.make(tmp_path)] == ["table.md"]


@pytest.mark.parametrize(("relaxed", "expected"), [(4.0, "yes"), (8.0, "no")])
def test_the_gradient_through_the_mask_is_judged_by_intervals(tmp_path, relaxed, expected):
    assert report.gradient(tmp_path) is None
    report.load.cache_clear()
    for router, loss in (("best", 1.0), ("hard", 6.0), ("relaxed", relaxed), ("balanced", 3.0)):
        losses = [loss, loss + 1, loss + 2.1 + (router == "relaxed") / 10]
        write_clusters(tmp_path / "vmoe_clusters" / router, router, losses, [[50.0] * 3] * 3)
    finding = report.gradient(tmp_path)
    assert (finding.as_stated, finding.tuned.answer) == (None, expected)
    count = int(relaxed < 6)  # the balanced plan is none of those that are judged
    assert finding.tuned.number == f"relaxed better in {count} of 1, worse in {1 - count}"
    assert len(report.blocks(tmp_path)["vmoe_clusters"]) > 3
