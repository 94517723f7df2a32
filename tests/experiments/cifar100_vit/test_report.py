"""Tables, figures and findings of the fine-tuning experiment: their numbers, by hand, and what is left out."""

import matplotlib as mpl
import numpy as np
import pytest

from experiments.cifar100_vit import report
from experiments.cifar100_vit.report import PRESENTATION
from experiments.core.report import making
from experiments.core.report.style import STYLE
from tests.scripts.workdirs import write_fine_tuning

KS = range(1, 11)


def test_pairs_are_by_seed_and_diverged_seeds_leave_the_means(tmp_path):
    write_fine_tuning(tmp_path / "xent", {1: [10.0, 20.0, None]}, "small,loss=xent", seeds=(2, 1, 0))
    write_fine_tuning(tmp_path / "topk", {1: [29.0, 18.0, 50.0]}, seeds=(0, 1, 7))
    write_fine_tuning(tmp_path / "lost", {1: [None] * 3}, "small,target=smooth")
    lines = "\n".join(report.tables(PRESENTATION.load(tmp_path)[0], making.chosen(tmp_path))).splitlines()
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|"))
    xent, topk, lost = (dict(zip(header, row, strict=True)) for row in rows)
    assert (xent["top-1"], xent["diverged"]) == ("15.00 ± 63.53", "1")
    assert topk["top-1 minus cross-entropy"] == "-2.00"  # of seed 1 alone
    assert (lost["top-1"], lost["top-1 minus cross-entropy"], lost["diverged"]) == ("-", "-", "3")


def test_curves_are_means_over_seeds_and_differences_those_of_pairs(tmp_path):
    def rising(*starts):
        return {k: [None if start is None else start + 4.0 * k for start in starts] for k in KS}

    write_fine_tuning(tmp_path / "xent", rising(20.0, 22.0, 24.0), "small,loss=xent")
    write_fine_tuning(tmp_path / "topk", rising(21.0, 24.0, 27.0), "small,p=4/3,target=smooth")
    write_fine_tuning(tmp_path / "lossy", rising(19.0, None, 29.0), "small,p=4/3")
    write_fine_tuning(tmp_path / "sweep", rising(50.0), split="validation")
    with mpl.rc_context(STYLE):
        accuracy, paired = report.figures(PRESENTATION.load(tmp_path)[0])["figure6"].axes
    for line, start in zip(accuracy.get_lines(), (22.0, 24.0, 24.0), strict=True):
        np.testing.assert_allclose(line.get_xydata(), [(k, start + 4.0 * k) for k in KS])
    # Seeds 0 and 2 give -1 and 5; all three give 1, 2 and 3. Cross-entropy itself is the line at 0.
    lossy, topk, zero = paired.get_lines()
    np.testing.assert_allclose([lossy.get_ydata(), topk.get_ydata()], np.full((2, 10), 2.0))
    assert set(zero.get_ydata()) == {0}
    # The band of 1, 2, 3: 2 -+ 4.302653 / sqrt(3).
    band = paired.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((2 - 2.484138, 2 + 2.484138), rel=1e-5)


@pytest.mark.parametrize(("top3", "expected"), [(70.0, ("yes", None)), (50.0, ("no", None))])
def test_the_papers_network_is_judged_where_it_was_trained(tmp_path, top3, expected):
    for name, level in (("xent", 60.0), ("topk", top3)):
        accuracies = {k: [level + seed / 10 + (seed * k) % 2 for seed in range(3)] for k in (1, 3, 5, 10)}
        write_fine_tuning(tmp_path / report.FULL / name, accuracies, "", loss__name=name, split="test")
    finding = report.accuracy(tmp_path)
    answers = tuple(verdict and verdict.answer for verdict in (finding.as_stated, finding.tuned))
    assert (answers, finding.on) == (expected, "paper's task")
