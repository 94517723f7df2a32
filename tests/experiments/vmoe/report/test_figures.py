"""The paper's Figure 7: what it shows, and that it is the same bytes every time."""

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe.report import figures, naming
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


def test_without_runs_on_test_there_is_no_figure(tmp_path, capsys):
    write_vmoe(tmp_path / "sweep", [[1.0], [50.0]], split="validation")
    assert figures.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: no finished runs below {tmp_path}\n"
