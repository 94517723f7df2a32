"""The numbers behind the paper's figures, and that all are drawn."""

import itertools
import json
import re

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report import making
from scripts.paper_figures import __main__ as command
from scripts.paper_figures import operators, solvers
from scripts.paper_figures.style import SHEET
from scripts.report import RESULTS


@pytest.fixture
def timings(tmp_path):
    """A directory with times and errors of every way at two sizes."""
    rows = [
        {"way": way, "n": n, "k": n // 10, "lam": 0.1, "max_abs_error": 1e-7, "median_ms": 2.0 * n}
        | {"lower_quartile_ms": 1.0 * n, "upper_quartile_ms": 3.0 * n}
        for way in solvers.LOOKS
        for n in (100, 1000)
    ]
    environment = {"devices": {"platform": "cpu", "kind": "cpu"}, "machine": {"cpu": "AMD EPYC", "cores": 2}}
    section = {"environment": environment, "settings": {"lam": 0.1}, "rows": rows}
    (tmp_path / "cpu.json").write_text(json.dumps(dict.fromkeys(("isotonic", "exactness"), section)))
    return tmp_path


def test_figure_1_shows_the_golden_values_and_does_not_connect_jumps(x64):
    s = np.linspace(*operators.MASK_RANGE, 21)
    lines = {p: operators.selected(s, p) for p in (None, 2.0)}
    places = [np.flatnonzero(np.isclose(s, place)).item() for place in (0.0, 0.5, 1.5, 2.0, 3.0, 4.0, 5.0)]
    np.testing.assert_allclose(lines[2.0][places], [1, 0.916667, 0.083333, 0, 0, 0.5, 1], atol=1e-6)
    for line in lines.values():
        assert np.all(line[(s > 1.7) & (s < 3.3)] == 0)
    gaps = [np.isnan(operators.broken(s, line)[1]).sum() for line in lines.values()]
    assert gaps == [2, 0]


def test_figure_2_has_a_triangle_a_hexagon_and_a_triangle(x64):
    for w, *_ in operators.POLYTOPES:
        found = operators.vertices(w)
        assert {tuple(y) for y in found} == set(itertools.permutations(w))
        x, y = operators.plane(found).T
        twice_area = np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
        # In units of the simplex: the hexagon lacks three corners of side 1/3, the capped simplex has side 1/2.
        ratio = {1.0: 1.0, 2 / 3: 1 - 3 / 9, 1 / 2: 1 / 4}[max(w)]
        assert twice_area == pytest.approx(ratio * np.sqrt(3) / 2)  # counter-clockwise: positive


def test_figure_3_has_kinks_for_p_2_and_none_for_smaller_p(x64):
    along = np.linspace(0.2, 0.8, 462)
    step = along[1] - along[0]
    x1 = along.reshape(22, 21)
    kept = {p: operators.kept(x1, np.zeros_like(x1), p).sum(axis=0).ravel() for p in (2.0, 4 / 3)}
    assert max(*np.abs(np.diff(kept[2.0])), *np.abs(np.diff(kept[4 / 3]))) < 3 * step
    bends = {p: np.abs(np.diff(line, 2)).max() / step for p, line in kept.items()}
    assert bends[2.0] > 0.5
    assert bends[4 / 3] < 0.05
    for line in kept.values():
        assert np.all(line[along < 0.25] == 0)


def test_figure_4_has_medians_quartiles_and_errors(timings):
    with mpl.rc_context(SHEET):
        time, error, over_lam = solvers.figure4(timings).axes
    assert len(time.get_lines()) == len(solvers.LOOKS)
    assert {tuple(line.get_ydata()) for line in time.get_lines()} == {(200.0, 2000.0)}
    quartiles = time.collections[0].get_paths()[0].vertices[:, 1]
    assert (quartiles.min(), quartiles.max()) == (100.0, 3000.0)
    assert {tuple(line.get_ydata()) for line in error.get_lines()} == {(1e-7, 1e-7), (1e-3, 1e-3)}
    assert [text.get_text() for text in over_lam.get_legend().get_texts()] == ["$n = 100$", "$n = 1,000$"]


def test_all_are_drawn(tmp_path, monkeypatch):
    """With simple functions for the operators, whose numbers are tested above, and without Figure 4, as is that."""
    drawn = []

    def save(figure, directory, name, dpi):
        figure.draw_without_rendering()
        drawn.append(name)
        return []

    monkeypatch.setattr(command, "save", save)
    monkeypatch.setattr(
        command,
        "FIGURES",
        {name: draw for name, draw in command.FIGURES.items() if name not in ("figure4", "relaxations")},
    )
    monkeypatch.setattr(operators, "selected", lambda s, p: np.clip(s / 5, 0, 1))
    monkeypatch.setattr(operators, "kept", lambda x1, x2, p: np.stack([x1, x2]) * (np.abs(x1) > 1))
    monkeypatch.setattr(operators, "k_support_negentropy", lambda y, k: -y[:, 0] / k)
    command.make(tmp_path)
    assert drawn == ["figure1", "figure2", "figure3", "figure8", "figure9"]


def test_without_timings_one_line_names_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "FIGURES", {"figure4": command.FIGURES["figure4"]})
    monkeypatch.setattr(command, "BENCH", tmp_path)
    assert making.on_directory("figures", "", command.make, [str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "python -m scripts.bench --only=isotonic,exactness" in line
    assert list(tmp_path.iterdir()) == []


def test_the_captions_tell_of_every_figure_that_is_committed():
    text = (RESULTS / "figures" / "captions.md").read_text()
    assert set(re.findall(r"\((\w+\.svg)\)", text)) == {f"{name}.svg" for name in command.FIGURES}
    assert {path.name for path in (RESULTS / "figures").glob("*.*g")} == {
        f"{name}.{suffix}" for name in command.FIGURES for suffix in ("png", "svg")
    }
    assert f"lambda = {operators.MASK_LAM:g}" in text
    assert f"lambda = {operators.MAG_LAM:g}" in text
