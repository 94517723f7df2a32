"""Tables, figure and findings of V-MoE, of runs with known numbers."""

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe import report
from tests.experiments.vmoe import tables
from tests.scripts.workdirs import write_vmoe

HARD = [[1.0, 1.0, 1.0], [20.0, 22.0, 24.0]]
RELAXED = [[1.0, 1.0, 1.0], [21.0, 24.0, 27.0]]


@pytest.fixture(autouse=True)
def _fresh():
    report.load.cache_clear()


def final_of(directory):
    """The runs on test, and the one that each is compared with."""
    final = report.final_runs(report.PRESENTATION.load(directory)[0])
    hards = report.PRESENTATION.references(final)
    return final, {name: hard and hard.name for name, hard in hards.items()}


def rows_of(directory, heading="Test after 1000 steps"):
    """The rows of a table by router, after it has been made."""
    report.make(directory)
    lines = (directory / "table.md").read_text().splitlines()
    return {row["router"]: row for row in tables.read(lines, heading)}


def test_runs_of_single_seeds_are_pooled_and_the_full_size_is_no_stand_in(tmp_path):
    for seed in range(3):
        write_vmoe(tmp_path / f"hard{seed}", [[row[seed]] for row in HARD], "router=hard", seeds=(seed,))
        write_vmoe(tmp_path / f"relaxed{seed}", [[row[seed]] for row in RELAXED], "router=relaxed", seeds=(seed,))
    rows = rows_of(tmp_path, "Test after 93800 steps")
    assert rows["relaxed, logits"]["minus hard"] == "+2.00 ± 2.48"
    assert "stand-in" not in (tmp_path / "table.md").read_text()


def test_the_figure_has_differences_with_intervals(tmp_path):
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed")
    write_vmoe(tmp_path / "lost", [[1.0] * 3, [None] * 3], "small,router=token_choice")
    write_vmoe(tmp_path / "long", HARD, steps=2000)
    made = report.make(tmp_path)
    assert {path.name for path in made} == {"table.md", "figure7.png", "figure7.svg"}
    with mpl.rc_context(STYLE):
        short, long = report.figure7(final_of(tmp_path)[0]).axes
    assert [label.get_text() for label in short.get_yticklabels()] == ["hard, gates", "relaxed, logits", "token choice"]
    assert [label.get_text() for label in long.get_yticklabels()] == ["hard, gates"]
    (bars,) = short.containers  # the hard router is at 0, and what is lost has no place
    points, _, (interval,) = bars.lines
    np.testing.assert_allclose(np.array(points.get_xdata(), float), [2.0])
    low, high = np.array(interval.get_segments()[0], float)
    np.testing.assert_allclose([low, high], [[2 - 2.4841, 1], [2 + 2.4841, 1]], rtol=1e-3)  # in the second row


@pytest.mark.parametrize(
    ("variant", "relaxed", "expected"),
    [("small,", 24.0, ("not possible here", "yes")), ("", 24.0, ("yes", None)), ("", 20.0, ("no", None))],
)
def test_precision_of_routers_is_judged_by_intervals(tmp_path, variant, relaxed, expected):
    assert report.precision(tmp_path) is None
    report.load.cache_clear()
    for name, level in (("hard", 22.0), ("relaxed", relaxed), ("annealed", 30.0)):
        rows = [[1.0] * 3, [level + seed + (seed % 2) / 10 for seed in range(3)]]
        write_vmoe(tmp_path / "vmoe" / name, rows, f"{variant}router={name}", steps=100)
    finding = report.precision(tmp_path)
    assert answers(finding) == expected
    verdict = finding.tuned or finding.as_stated
    assert float(verdict.number.split()[1]) == abs(relaxed - 22.0)  # an annealed router is none of the paper's


def test_the_papers_dykstra_is_the_number_that_is_told(tmp_path):
    write_vmoe(tmp_path / "vmoe" / "hard", HARD, router__score="logits")
    for name, gain, dykstra in (("exact", 5.0, 0), ("papers", 1.0, 10)):
        rows = [HARD[0], [value + gain for value in HARD[1]]]
        write_vmoe(tmp_path / "vmoe" / name, rows, "small,router=relaxed", router__dykstra=dykstra)
    assert report.precision(tmp_path).tuned.number == "precision 1.00 ± 0.00 higher"


def answers(finding):
    """The two answers: at the paper's settings, and tuned."""
    return tuple(verdict and verdict.answer for verdict in (finding.as_stated, finding.tuned))
