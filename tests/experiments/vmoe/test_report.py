"""Tables, figure and findings of V-MoE, of runs with known numbers."""

import re

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe import report
from tests.scripts.workdirs import answers, write_vmoe

HARD = [[1.0, 1.0, 1.0], [20.0, 22.0, 24.0]]
RELAXED = [[1.0, 1.0, 1.0], [21.0, 24.0, 27.0]]


def test_single_seed_runs_are_pooled(tmp_path):
    for seed in range(3):
        write_vmoe(tmp_path / f"hard{seed}", [[row[seed]] for row in HARD], "router=hard", seeds=(seed,))
        write_vmoe(tmp_path / f"relaxed{seed}", [[row[seed]] for row in RELAXED], "router=relaxed", seeds=(seed,))
    report.make(tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert "### Test after 93800 steps" in table
    assert table.count("| +2.00 ± 2.48 |") == 1
    assert "stand-in" not in table


def test_figure7_shows_paired_differences(tmp_path):
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed")
    write_vmoe(tmp_path / "lost", [[1.0] * 3, [None] * 3], "small,router=token_choice")
    with mpl.rc_context(STYLE):
        (axes,) = report.figures(report.PRESENTATION.load(tmp_path)[0])["figure7"].axes
    (bars,) = axes.containers  # the hard router is at 0, and what is lost has no place
    points, _, (interval,) = bars.lines
    np.testing.assert_allclose(np.array(points.get_xdata(), float), [2.0])
    low, high = np.array(interval.get_segments()[0], float)
    np.testing.assert_allclose([low, high], [[2 - 2.4841, 1], [2 + 2.4841, 1]], rtol=1e-3)  # in the second row


@pytest.mark.parametrize(
    ("variant", "relaxed", "expected"),
    [
        ("small,", 24.0, ("not possible here", "holds")),
        ("", 24.0, ("holds", None)),
        ("", 20.0, ("does not hold", None)),
    ],
)
def test_precision_is_judged_by_intervals(tmp_path, variant, relaxed, expected):
    assert report.precision(tmp_path) is None
    report.load.cache_clear()
    for name, level in (("hard", 22.0), ("relaxed", relaxed), ("annealed", 30.0)):
        dykstra = 10 if name == "relaxed" else 0
        rows = [[1.0] * 3, [level + seed + (seed % 2) / 10 for seed in range(3)]]
        write_vmoe(tmp_path / "vmoe" / name, rows, f"{variant}router={name}", steps=100, router__dykstra=dykstra)
    finding = report.precision(tmp_path)
    assert answers(finding) == expected
    verdict = finding.tuned or finding.as_stated
    assert float(re.search(r"precision (\S+) ", verdict.told)[1]) == abs(relaxed - 22.0)


def test_further_seeds_decide_the_claim(tmp_path):
    """Compares them with the hard router of the same seeds."""
    report.load.cache_clear()
    for first, (hard, relaxed) in {0: (20.0, 21.0), 10: (30.0, 28.0)}.items():
        for name, level in (("hard", hard), ("relaxed", relaxed)):
            fields = {"router__dykstra": 10 if name == "relaxed" else 0, "seeds": (first, first + 1), "steps": 100}
            fields["eval_batch_size"] = 100 + first  # or the runs would be one
            rows = [[1.0] * 2, [level, level + 5]]
            write_vmoe(tmp_path / "vmoe" / f"{name}-{first}", rows, f"small,router={name}", **fields)
    rows = report.test_rows(report.final_runs(report.load(tmp_path / "vmoe")))
    assert [router.partition(", seeds ")[2] for router in rows["router"]] == ["", "10 to 11"] * 2
    assert list(rows["minus hard"]) == ["-", "-", "+1.00 ± 0.00", "-2.00 ± 0.00"]
    assert report.precision(tmp_path).tuned.told.endswith("precision 2.00 ± 0.00 lower")
