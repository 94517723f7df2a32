"""The paper's Figure 7: what it shows, and that it is the same bytes every time."""

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe.report import figures, naming, pictures
from tests.scripts.workdirs import write_vmoe


@pytest.fixture
def results(tmp_path):
    """Two routers, one that diverged, and what has no place in the figure."""
    write_vmoe(tmp_path / "hard", [[1.0, 1.0], [10.0, 12.0], [20.0, 24.0]], steps=600)
    write_vmoe(tmp_path / "relaxed", [[1.0, 1.0], [11.0, 11.0], [23.0, 23.0]], "small,router=relaxed", steps=600)
    write_vmoe(tmp_path / "lost", [[1.0, 1.0], [5.0, 5.0], [None, None]], "small,router=token_choice", steps=600)
    write_vmoe(tmp_path / "sweep", [[1.0], [50.0]], split="validation")
    return tmp_path


def test_the_figure_is_written_and_regenerated_byte_for_byte(results):
    first = {path: path.read_bytes() for path in figures.make(results)}
    assert {path.relative_to(results).as_posix() for path in first} == {"figures/figure7.png", "figures/figure7.svg"}
    assert first == {path: path.read_bytes() for path in figures.make(results)}


def test_the_legend_of_many_routers_fits_into_the_figure(results):
    long = {"router__capacity": 84, "router__p": 4 / 3}
    for number in range(6):
        rows = [[1.0, 1.0], [10.0, 12.0], [20.0, 24.0]]
        write_vmoe(results / f"more{number}", rows, "small,router=annealed", steps=600, seeds=(0, 10 + number), **long)
    runs, _ = naming.load(results)
    for final in (naming.final(runs), [run for run in naming.final(runs) if not run.name.startswith("more")]):
        with mpl.rc_context(STYLE):
            figure = figures.figure7(final)
            figure.canvas.draw()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_what_trains_for_longer_has_a_figure_of_its_own(results):
    write_vmoe(results / "longer", [[1.0, 1.0], [30.0, 32.0], [40.0, 44.0]], steps=2400)
    written = {path.name for path in figures.make(results)}
    assert written == {"figure7.png", "figure7.svg", "figure7_2400.png", "figure7_2400.svg"}
    short, longer = ((results / "figures" / f"figure7{name}.svg").read_text() for name in ("", "_2400"))
    assert ("22.00 ±" in short, "42.00 ±" in short) == (True, False)
    assert ("22.00 ±" in longer, "42.00 ±" in longer) == (False, True)


def test_curves_are_means_over_seeds_and_the_right_panel_is_the_end(results):
    runs, _ = naming.load(results)
    with mpl.rc_context(STYLE):
        whole, end = figures.figure7(naming.final(runs)).axes
    wanted = {
        "hard expert choice, of the gates: 22.00 ± 25.41 %": [1.0, 11.0, 22.0],
        "relaxed expert choice, p = 2, of the logits: 23.00 ± 0.00 %": [1.0, 11.0, 23.0],
        "token choice, 2 experts: diverged": [1.0, 5.0, np.nan],
    }
    for axes in (whole, end):
        curves = {line.get_label(): line for line in axes.get_lines()}
        assert list(curves) == list(wanted)
        for label, means in wanted.items():
            np.testing.assert_array_equal(curves[label].get_xdata(), [0, 300, 600])
            np.testing.assert_allclose(curves[label].get_ydata(), means)
    assert end.get_xlim() == (360, 600)


def test_what_routers_do_is_drawn_in_their_colours(tmp_path):
    write_vmoe(tmp_path / "hard", [[1.0, 1.0], [10.0, 12.0], [20.0, 24.0]], steps=600, stability=(40.0, 60.0))
    write_vmoe(tmp_path / "relaxed", [[1.0, 1.0], [11.0, 11.0], [23.0, 23.0]], "small,router=relaxed", steps=600)
    runs = naming.final(naming.load(tmp_path)[0])
    with mpl.rc_context(STYLE):
        entropy, stability = figures.routing(runs).axes
        whole, _ = figures.figure7(runs).axes
    (of_gates,), (of_experts,) = entropy.get_lines(), stability.get_lines()  # the other run has none
    np.testing.assert_allclose(of_gates.get_ydata(), [2.0, 1.0, 0.0])
    np.testing.assert_allclose(of_experts.get_ydata(), [np.nan, 41.0, 61.0])
    assert of_gates.get_color() == of_experts.get_color() == whole.get_lines()[0].get_color()


ASSIGNED = np.zeros((1, 8, 3), bool)  # of two images of 2 x 2 patches
ASSIGNED[0, [0, 1, 5], 0] = True
ASSIGNED[0, [2, 3], 2] = True


def test_patches_are_in_their_places_and_class_tokens_are_none():
    works_on = pictures.patches(ASSIGNED[0], 2)
    assert np.argwhere(works_on).tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 2], [0, 1, 1, 2], [1, 0, 1, 0]]
    with_class = np.insert(ASSIGNED[0].reshape(2, 4, 3), 0, True, axis=1).reshape(10, 3)
    np.testing.assert_array_equal(pictures.patches(with_class, 2), works_on)


def test_experts_of_few_images_come_first_and_those_of_none_last():
    works_on = np.zeros((4, 2, 2, 3), bool)
    works_on[:, 0, 0, 0] = True  # a patch in each of four images
    works_on[1, :, :, 2] = True  # a whole image
    np.testing.assert_array_equal(pictures.narrowest(works_on), [2, 0, 1])


def test_patches_that_an_expert_works_on_are_framed(tmp_path):
    precisions = [[1.0], [20.0]]
    for name, variant in (("hard", "small,router=hard"), ("relaxed", "small,router=relaxed")):
        write_vmoe(tmp_path / name, precisions, variant, probe={"block_3": ASSIGNED, "block_1": ~ASSIGNED})
    assert pictures.read(tmp_path) is None
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    np.savez(tmp_path / pictures.NAME, image=images)
    with mpl.rc_context(STYLE):
        axes = pictures.experts(naming.final(naming.load(tmp_path)[0]), pictures.read(tmp_path)).axes
    hard = axes[:4]
    assert [panel.get_title() for panel in hard[:3]] == [
        "expert 0: 3 in 2 images",
        "expert 2: 2 in 1 images",
        "expert 1: 0 in 0 images",
    ]
    assert [len(panel.patches) for panel in hard[:3]] == [3, 2, 0]
    (canvas,) = (image.get_array() for image in hard[1].get_images())
    np.testing.assert_array_equal(canvas[16, 0], images[0, 2, 0])  # a patch that the expert works on
    assert (canvas[0, 0] > images[0, 0, 0]).all()  # and one that it does not


def test_without_runs_on_test_there_is_no_figure(tmp_path, capsys):
    write_vmoe(tmp_path / "sweep", [[1.0], [50.0]], split="validation")
    assert figures.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: no finished runs below {tmp_path}\n"
