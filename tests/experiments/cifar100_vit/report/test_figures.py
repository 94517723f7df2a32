"""The paper's Figure 6: what it shows, and that it is the same bytes every time."""

import matplotlib as mpl
import numpy as np
import pytest

from experiments.cifar100_vit.report import figures, naming
from experiments.core.report.style import STYLE
from tests.scripts.workdirs import write_fine_tuning, write_workdir

KS = range(1, 11)


def rising(*starts):
    """Accuracies of some seeds, 4 points more with every k."""
    return {k: [None if start is None else start + 4.0 * k for start in starts] for k in KS}


@pytest.fixture
def results(tmp_path):
    """Three losses, a diverged one, and what has no place in the figure."""
    write_fine_tuning(tmp_path / "xent", rising(20.0, 22.0, 24.0), "small,loss=xent")
    write_fine_tuning(tmp_path / "topk", rising(21.0, 24.0, 27.0), "small,p=4/3,target=smooth")
    write_fine_tuning(tmp_path / "lossy", rising(19.0, None, 29.0), "small,p=4/3")
    write_fine_tuning(tmp_path / "lost", rising(None, None, None))
    write_fine_tuning(tmp_path / "sweep", rising(50.0), split="validation")
    write_fine_tuning(tmp_path / "pretrain", {1: [70.0]}, "pretrain", split="validation")
    return tmp_path


def draw(directory):
    """The axes, of accuracies and of differences, and their curves by label."""
    runs, _ = naming.load(directory)
    with mpl.rc_context(STYLE):
        figure = figures.figure6(naming.final(runs))
    accuracy, paired = figure.axes
    return figure, {line.get_label(): line for line in accuracy.get_lines()}, paired.get_lines()


def test_the_figure_is_written_and_regenerated_byte_for_byte(results):
    first = {path: path.read_bytes() for path in figures.make(results)}
    assert {path.relative_to(results).as_posix() for path in first} == {"figures/figure6.png", "figures/figure6.svg"}
    assert first == {path: path.read_bytes() for path in figures.make(results)}


def test_curves_are_means_over_seeds_and_differences_those_of_pairs(results):
    figure, curves, differences = draw(results)
    ks = np.array(KS)
    wanted = {
        "cross-entropy (learning rate 3e-3)": 22 + 4.0 * ks,
        "top-3, p = 2, the paper's (learning rate 5e-3, lam = 0.1)": np.full(10, np.nan),
        "top-3, p = 4/3, the paper's (learning rate 5e-3, lam = 0.1)": 24 + 4.0 * ks,
        "top-3, p = 4/3, smooth target (learning rate 5e-3, lam = 0.1)": 24 + 4.0 * ks,
    }
    assert list(curves) == list(wanted)
    for label, mean in wanted.items():
        np.testing.assert_array_equal(curves[label].get_xdata(), ks)
        np.testing.assert_allclose(curves[label].get_ydata(), mean)
    # Seeds 0 and 2 give -1 and 5; all three give 1, 2 and 3. Cross-entropy itself is the line at 0.
    lost, lossy, topk, zero = differences
    assert np.isnan(lost.get_ydata()).all()
    np.testing.assert_allclose(lossy.get_ydata(), np.full(10, 2.0))
    np.testing.assert_allclose(topk.get_ydata(), np.full(10, 2.0))
    assert set(zero.get_ydata()) == {0}
    assert zero.get_color() == curves["cross-entropy (learning rate 3e-3)"].get_color()
    assert lossy.get_linestyle() == "--"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(wanted)
    # The band of 1, 2, 3: 2 -+ 4.302653 / sqrt(3).
    band = figure.axes[1].collections[2].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((2 - 2.484138, 2 + 2.484138), rel=1e-5)


def test_a_stand_in_is_called_one_and_the_full_size_is_not(tmp_path):
    write_fine_tuning(tmp_path / "small" / "run", rising(20.0, 30.0))
    write_fine_tuning(tmp_path / "full" / "run", rising(20.0, 30.0), "")
    assert "stand-in" in draw(tmp_path / "small")[0].get_suptitle()
    assert draw(tmp_path / "full")[0].get_suptitle() == ""


def test_what_is_left_out_is_named(results, capsys):
    (results / "topk" / "summary.json").unlink()
    write_workdir(results / "other", [[90.0], [5.0]])
    assert figures.main([str(results)]) == 0
    err = capsys.readouterr().err
    assert "left out of the figures: topk: unfinished: step 100 of 100" in err
    assert "left out of the figures: other: not a run of the fine-tuning experiment" in err


def test_nothing_to_draw_is_said(tmp_path, capsys):
    write_fine_tuning(tmp_path / "sweep", rising(50.0), split="validation")
    assert figures.main([str(tmp_path)]) == 1
    assert "no finished runs" in capsys.readouterr().err


def test_on_features_both_kinds_of_rates_are_drawn_and_the_accuracy_against_the_rate(tmp_path):
    write_fine_tuning(tmp_path / "paper" / "xent", rising(20.0, 22.0), "features,loss=xent")
    write_fine_tuning(tmp_path / "final-xent", rising(30.0, 32.0), "features,loss=xent", optimizer__learning_rate=0.1)
    for rate, start in ((0.1, 30.0), (0.01, 20.0)):
        fields = {"split": "validation", "optimizer__learning_rate": rate}
        write_fine_tuning(tmp_path / f"sweep/xent-{rate}", rising(start), "features,loss=xent", **fields)
        write_fine_tuning(tmp_path / f"sweep/topk-{rate}", rising(start + 1), "features", **fields)
    written = {path.name for path in figures.make(tmp_path) if path.suffix == ".svg"}
    assert written == {"figure6.svg", "figure6-paper-rates.svg", "accuracy-by-rate.svg"}
    runs, _ = naming.load(tmp_path)
    with mpl.rc_context(STYLE):
        figure = figures.by_rate(naming.by_loss(run for run in runs if run.config["split"] == "validation"))
    first, fifth = ({line.get_label(): line for line in axes.get_lines()} for axes in figure.axes)
    assert list(first) == ["cross-entropy", "top-3, p = 2, the paper's"]
    np.testing.assert_allclose(first["cross-entropy"].get_xydata(), [[0.01, 24], [0.1, 34]])
    np.testing.assert_allclose(fifth["top-3, p = 2, the paper's"].get_xydata(), [[0.01, 41], [0.1, 51]])


def test_of_several_lam_the_curve_is_that_of_the_best(tmp_path):
    for lam, starts in ((0.1, (30.0, 20.0)), (1.0, (10.0, 40.0)), (10.0, (35.0, None))):
        for rate, start in zip((0.01, 0.1), starts, strict=True):
            fields = {"split": "validation", "optimizer__learning_rate": rate, "loss__lam": lam}
            write_fine_tuning(tmp_path / f"{lam}-{rate}", rising(start), **fields)
    (written,) = {path.stem for path in figures.make(tmp_path)}
    assert written == "accuracy-by-rate"
    runs, _ = naming.load(tmp_path)
    with mpl.rc_context(STYLE):
        figure = figures.by_rate(naming.by_loss(runs))
    (line,) = figure.axes[0].get_lines()
    assert line.get_label() == "top-3, p = 2, the paper's, lam = 1"
    np.testing.assert_allclose(line.get_xydata(), [[0.01, 14], [0.1, 44]])


@pytest.mark.parametrize(
    ("variant", "title"),
    [
        ("features", "A stand-in for ViT-B/16 (linear head on features of EfficientNet-Lite0, ImageNet-1k)"),
        ("last_block", "A stand-in for ViT-B/16 (last block and head of EfficientNet-Lite0, ImageNet-1k)"),
        ("whole", "A stand-in for ViT-B/16 (all of EfficientNet-Lite0, ImageNet-1k)"),
        ("small", "A stand-in for ViT-B/16 (small network, pretrained on coarse labels)"),
        ("", None),
    ],
)
def test_its_title_says_what_was_trained(tmp_path, variant, title):
    write_fine_tuning(tmp_path / "run", rising(20.0, 22.0), variant)
    figure, *_ = draw(tmp_path)
    assert figure.get_suptitle() == (title or "")
