"""Tables, figures and findings of the fine-tuning experiment: their numbers, by hand, and what is left out."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest

from experiments.cifar100_vit import report
from experiments.cifar100_vit.report import PRESENTATION
from experiments.core.report import making
from experiments.core.report.style import STYLE
from tests.scripts.workdirs import answers, write_fine_tuning

KS = range(1, 11)
PAPERS = {"loss__p": 4 / 3, "loss__target": "one_hot", "split": "test"}


def rows_of(directory):
    """The rows of the table, as cells by column, and all lines."""
    lines = "\n".join(report.tables(PRESENTATION.load(directory)[0], making.chosen(directory))).splitlines()
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|"))
    return [dict(zip(header, row, strict=True)) for row in rows], "\n".join(lines)


def test_differences_are_paired_by_seed(tmp_path):
    write_fine_tuning(tmp_path / "xent", {1: [10.0, 20.0, None]}, "small,loss=xent", seeds=(2, 1, 0))
    write_fine_tuning(tmp_path / "topk", {1: [29.0, 18.0, 50.0]}, seeds=(0, 1, 7))
    write_fine_tuning(tmp_path / "lost", {1: [None] * 3}, "small,target=smooth")
    (xent, topk, lost), _ = rows_of(tmp_path)
    assert (xent["top-1"], xent["diverged"]) == ("15.00 ± 63.53", "1")
    assert topk["top-1 minus cross-entropy"] == "-2.00"  # of seed 1 alone
    assert (lost["top-1"], lost["top-1 minus cross-entropy"], lost["diverged"]) == ("-", "-", "3")


def test_ranks_give_intervals_over_images(tmp_path):
    """Four images, by the ranks of their labels; the third seed of one of them has diverged and does not count."""
    ranks = {"xent": [[0, 1, 2, 3], [0, 0, 5, 9], [0, 0, 9, 9]], "topk": [[0, 0, 0, 2], [0, 0, 1, 0], [10, 10, 10, 10]]}
    write_fine_tuning(tmp_path / "xent", {1: [25.0, 50.0, 50.0]}, "loss=xent", ranks=ranks["xent"])
    write_fine_tuning(tmp_path / "topk", {1: [75.0, 75.0, None]}, "", ranks=ranks["topk"])
    # By image (0 + 0) / 2, (1 + 0) / 2, (1 + 0) / 2 and (0 + 1) / 2, in percent: a standard deviation of 25.
    (_, topk), text = rows_of(tmp_path)
    assert topk["top-1 minus cross-entropy"] == "+37.50 ± 158.83 / 24.50"
    assert "a number after a stroke is the half width of their 95 % interval over test images" in text


def test_figure6_shows_means_and_differences(tmp_path):
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


@pytest.mark.parametrize(("top3", "expected"), [(70.0, "holds"), (50.0, "does not hold")])
def test_papers_task_outranks_the_stand_in(tmp_path, top3, expected):
    on_features(tmp_path, -9.0, 9.0)
    for folder, name, level in itertools.product(("paper/", "final-"), ("xent", "topk"), (60.0, top3)):
        if (level == 60.0) == (name == "xent"):
            accuracies = {k: [level + seed / 10 + (seed * k) % 2 for seed in range(3)] for k in KS}
            write_fine_tuning(tmp_path / report.FULL / f"{folder}{name}", accuracies, f"loss={name}", **PAPERS)
    finding = report.accuracy(tmp_path)
    assert (answers(finding), finding.on) == ((expected, expected), "paper's task")


def on_features(results, papers, own, form="features", name="cifar100_pretrained"):
    """Cross-entropy with 60 % at every k at the paper's rates, 70 % at its own, and top-3 losses so far ahead of it."""
    for folder, level, losses in (("paper/", 60.0, papers), ("final-", 70.0, own)):
        for loss, ahead in {"xent": 0.0, "topk": losses}.items():
            accuracies = {k: [level + ahead + seed / 10 * (k % 2) for seed in range(3)] for k in KS}
            write_fine_tuning(results / name / f"{folder}{loss}", accuracies, f"{form},loss={loss}", **PAPERS)
    return results


@pytest.mark.parametrize(
    ("papers", "own", "expected"),
    [
        (9.0, -1.0, ("holds", "does not hold")),
        (-9.0, 40.0, ("does not hold", "holds")),
        (0.0, 0.0, ("not shown", "not shown")),
    ],
)
def test_claim_is_judged_as_stated_and_tuned(tmp_path, papers, own, expected):
    finding = report.accuracy(on_features(tmp_path, papers, own))
    assert answers(finding) == expected
    for verdict, ahead in ((finding.as_stated, papers), (finding.tuned, own)):
        assert verdict.told.endswith(f"{abs(ahead):.2f} ± 0.00 {'lower' if ahead < 0 else 'higher'}")
    (lines,) = report.blocks(tmp_path).values()
    assert sum(line.count(f"| {papers:+.2f} ± 0.00 |") for line in lines) == 1 + (papers == own)


def test_losses_that_chose_lam_compete_apart(tmp_path):
    on_features(tmp_path, -9.0, -1.0, "last_block", "cifar100_last_block")
    for loss, level in {"xent_temperature": 66.0, "topk": 63.0}.items():
        fields = PAPERS | {"loss__name": loss, "loss__lam": 0.1}
        accuracies = {k: [level + seed for seed in range(3)] for k in KS}
        write_fine_tuning(tmp_path / "cifar100_last_block/paper-lam" / loss, accuracies, "last_block", **fields)
    (lines,) = report.blocks(tmp_path).values()
    differences = [line.split("|")[-2].strip() for line in lines if line.startswith(("| cross", "| top"))]
    assert differences == ["-", "-9.00 ± 0.00", "-", "-3.00 ± 0.00", "-", "-1.00 ± 0.00"]


@pytest.mark.parametrize("missing", ["paper/topk", "final-xent"])
def test_largest_finished_part_decides(tmp_path, missing):
    parts = ("cifar100_last_block", "cifar100_pretrained")
    for finished, expected in enumerate([None, ("holds", "does not hold"), ("does not hold", "holds")]):
        results = on_features(tmp_path / str(finished), 9.0, -1.0)
        on_features(results, -2.0, 3.0, "last_block", "cifar100_last_block")
        for part in parts[: 2 - finished]:
            (results / part / missing / "summary.json").unlink()
        finding = report.accuracy(results)
        assert (finding and answers(finding)) == expected


def test_rate_and_lam_grid_is_drawn_as_a_map(tmp_path):
    """Makes cross-entropy with a temperature the reference where there is no other."""
    points = [(rate, lam) for rate in (0.001, 0.01, 0.04) for lam in (0.1, 3.0)]
    for loss in ("xent_temperature", "topk"):
        for number, (rate, lam) in enumerate(points):
            fields = {"optimizer__learning_rate": rate, "loss__lam": lam, "loss__name": loss, "split": "validation"}
            accuracies = {k: [10.0 * number + k] for k in KS}
            write_fine_tuning(tmp_path / "sweep" / f"{loss}-{number}", accuracies, "transformer", **fields)
        for seed in (0, 1):
            ahead = 50.0 + 2 * seed + 3 * (loss == "topk")
            fields = {"loss__name": loss, "seeds": (seed,)}
            write_fine_tuning(tmp_path / f"final-{loss}-seed{seed}", {k: [ahead] for k in KS}, "transformer", **fields)
    runs = PRESENTATION.load(tmp_path)[0]
    figures = report.figures(runs)
    assert figures.keys() == {"figure6", "accuracy-by-rate", "accuracy-by-rate-and-lam"}
    *panels, _ = figures["accuracy-by-rate-and-lam"].axes
    for axes in panels:
        np.testing.assert_allclose(axes.images[0].get_array(), [[3, 23, 43], [13, 33, 53]])
    (own,) = report.compared(runs).values()
    column = report.test_rows(own)["top-3 minus cross-entropy"]
    assert list(column) == ["-", "+3.00 ± 0.00"]
    assert "all of a DINOv2 ViT-S/14" in "\n".join(report.tables(runs, frozenset()))


def test_rate_curves_need_several_rates(tmp_path):
    """Leaves a loss that was tried at two rates out of the limits of the axis, too."""
    tried = {"xent": (0.01, 0.1, 1.0), "xent_temperature": (0.1, 1.0)}
    for loss, rates in tried.items():
        for rate in rates:
            fields = {"optimizer__learning_rate": rate, "loss__name": loss, "split": "validation"}
            accuracies = {k: [50.0 + rate if loss == "xent" else 90.0] for k in KS}
            write_fine_tuning(tmp_path / "sweep" / f"{loss}-{rate}", accuracies, **fields)
    top_1, _ = report.figures(PRESENTATION.load(tmp_path)[0])["accuracy-by-rate"].axes
    (line,) = top_1.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [(0.01, 50.01), (0.1, 50.1), (1.0, 51.0)])
    assert top_1.get_ylim()[0] == pytest.approx(48.01)
