"""Tables, figures and the finding of the task, of runs with known numbers."""

import matplotlib as mpl
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe_clusters import report
from tests.scripts.workdirs import write_clusters


def test_the_figure_is_of_the_numbers(tmp_path):
    write_clusters(tmp_path / "a", "best", [1.0, 2.0, 3.0], [[100.0] * 3] * 3)
    write_clusters(tmp_path / "b", "hard", [5.0, 6.0, 10.0], [[10.0] * 3, [50.0, 72.0, 50.0], [72.0, 75.0, 71.9]])
    write_clusters(tmp_path / "c", "relaxed", [4.0, 4.0, 7.0], [[10.0] * 3, [60.0, 75.0, 80.0], [75.0] * 3])
    write_clusters(tmp_path / "d", "relaxed", [9.0] * 3, [[10.0] * 3] * 2, split="validation")
    with mpl.rc_context(STYLE):
        axes = report.figures(report.PRESENTATION.load(tmp_path)[0])["excess"].axes
    drawn = [[bars.lines[0].get_ydata().tolist() for bars in one.containers] for one in axes]
    assert drawn == [[[5.0], [3.0]], [[-2.0]]]  # hard and relaxed over the best; relaxed over hard


@pytest.mark.parametrize(("relaxed", "expected"), [(4.0, "holds"), (8.0, "does not hold")])
def test_gradient_is_judged_by_intervals(tmp_path, relaxed, expected):
    assert report.gradient(tmp_path) is None
    report.load.cache_clear()
    for router, loss in (("best", 1.0), ("hard", 6.0), ("relaxed", relaxed), ("balanced", 3.0)):
        losses = [loss, loss + 1, loss + 2.1 + (router == "relaxed") / 10]
        write_clusters(tmp_path / "vmoe_clusters" / router, router, losses, [[50.0] * 3] * 3)
    finding = report.gradient(tmp_path)
    assert (finding.as_stated, finding.tuned.answer) == (None, expected)
    assert ("lower" if relaxed < 6 else "higher") in finding.tuned.told
    assert len(report.blocks(tmp_path)["vmoe_clusters"]) > 3
