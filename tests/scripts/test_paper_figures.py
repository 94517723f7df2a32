"""The numbers behind the paper's figures, and that the same bytes are drawn every time."""

import itertools
import json

import numpy as np
import pytest

from scripts.bench import isotonic
from scripts.bench.timing import Budget
from scripts.paper_figures import __main__ as command
from scripts.paper_figures import (
    baselines,
    drawings,
    figure2,
    figure3,
    figure4,
    figure8,
    figure9,
    moving_entry,
    simplex,
)
from scripts.paper_figures.setting import Setting


@pytest.fixture(scope="module")
def timings(tmp_path_factory):
    """A directory with a small benchmark of the isotonic solvers."""
    directory = tmp_path_factory.mktemp("bench")
    command = ["--sizes", "200", "--lams", "0.1", "--seconds", "0.05", f"--results={directory}"]
    assert isotonic.main(command) == 0
    return directory


def test_figure_1_shows_the_golden_values_and_does_not_connect_jumps(x64):
    s = np.linspace(*moving_entry.RANGE, 21)
    lines = {p: moving_entry.selected(s, p) for p in (None, 2.0, 4 / 3)}
    places = [np.flatnonzero(np.isclose(s, place)).item() for place in (0.0, 0.5, 1.5, 2.0, 3.0, 4.0, 5.0)]
    np.testing.assert_allclose(lines[2.0][places], [1, 0.916667, 0.083333, 0, 0, 0.5, 1], atol=1e-6)
    np.testing.assert_allclose(lines[4 / 3][places], [1, 0.995495, 0.004505, 0, 0, 0.5, 1], atol=1e-6)
    for line in lines.values():
        assert np.all(line[(s > 1.7) & (s < 3.3)] == 0)
    gaps = [np.isnan(moving_entry.broken(s, line)[1]).sum() for line in lines.values()]
    assert gaps == [2, 0, 0]


def test_figure_2_has_a_triangle_a_hexagon_and_a_triangle(x64):
    for w, *_ in figure2.POLYTOPES:
        found = simplex.vertices(w)
        assert {tuple(y) for y in found} == set(itertools.permutations(w))
        x, y = simplex.plane(found).T
        twice_area = np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
        # In units of the simplex: the hexagon lacks three corners of side 1/3, the capped simplex has side 1/2.
        ratio = {1.0: 1.0, 2 / 3: 1 - 3 / 9, 1 / 2: 1 / 4}[max(w)]
        assert twice_area == pytest.approx(ratio * np.sqrt(3) / 2)  # counter-clockwise: positive


def test_figure_3_jumps_when_hard_has_kinks_for_p_2_and_none_for_smaller_p(x64):
    along = np.linspace(0.2, 0.8, 462)
    step = along[1] - along[0]
    x1 = along.reshape(22, 21)  # the shape that is compiled for the drawing below, too
    kept = {p: figure3.kept(x1, np.zeros_like(x1), p).sum(axis=0).ravel() for p in (None, 2.0, 4 / 3)}
    assert max(np.diff(kept[None])) == pytest.approx(0.5, abs=0.01)
    assert max(*np.abs(np.diff(kept[2.0])), *np.abs(np.diff(kept[4 / 3]))) < 3 * step
    bends = {p: np.abs(np.diff(line, 2)).max() / step for p, line in kept.items()}
    assert bends[2.0] > 0.5
    assert bends[4 / 3] < 0.05
    for line in kept.values():
        assert np.all(line[along < 0.25] == 0)


def test_figure_4_measures_times_and_errors(timings):
    (path,) = timings.iterdir()
    machine = json.loads(path.read_text())
    times, errors = (machine[name]["rows"] for name in ("isotonic", "exactness"))
    assert {row["way"] for row in times} == set(isotonic.WAYS) == set(figure4.LOOKS)
    assert all(row["lower_quartile_ms"] <= row["median_ms"] <= row["upper_quartile_ms"] for row in times)
    assert {(row["n"], row["k"], row["lam"]) for row in errors} == {(200, 20, 0.1)}
    error = {row["way"]: row["max_abs_error"] for row in errors}
    assert set(error) == {name for name, way in isotonic.WAYS.items() if way.mask}
    assert max(error["PAV"], error["scalar equation"]) < 1e-5
    assert error["Dykstra, 10 iterations"] > error["Dykstra, 100 iterations"] > 1e-9


def test_ways_are_left_out_above_their_size(monkeypatch):
    ways = {name: isotonic.Way(way.operator, 15, way.mask) for name, way in isotonic.WAYS.items() if name == "jnp.sort"}
    monkeypatch.setattr(isotonic, "WAYS", ways)
    rows = [row for n in (10, 20) for row in isotonic.measure_times(isotonic.case_of(n), Budget(0.01, 3, 3))]
    assert [row["n"] for row in rows] == [10]


def test_of_400_tokens_an_expert_takes_28_as_in_the_paper():
    assert [isotonic.case_of(n).k for n in (300, 400, 1000)] == [30, 28, 100]


def test_figure_9_is_shannon_s_negentropy_for_k_3_and_lowest_on_the_capped_simplex(x64):
    y = figure9.grid(21)
    np.testing.assert_allclose(y.sum(axis=1), 1.0)
    assert len(y) == 21 * 22 // 2
    logarithms = np.log(np.where(y > 0, y, 1.0))
    np.testing.assert_allclose(figure9.negentropy(y, 3), (y * logarithms).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(figure9.negentropy(y, 1), 0.0, atol=1e-12)
    capped = np.all(y <= 0.5, axis=1)
    np.testing.assert_allclose(figure9.negentropy(y[capped], 2), -np.log(2.0), atol=1e-12)
    assert figure9.negentropy(y[~capped], 2).min() > -np.log(2.0) + 1e-4


def test_the_strength_gives_the_climb_and_the_relaxed_mask_is_sparse(x64):
    s = np.linspace(0.0, 4.0, 21)
    method = baselines.METHODS[0]
    found = baselines.response(method, s, baselines.strength(method))
    assert found.mask[[9, 11]] == pytest.approx((0.25, 0.75), abs=1e-3)  # 0.4 apart
    assert np.all(found.mask[s < 1.55] == 0)
    assert np.all(found.derivative[(s < 1.55) | (s > 2.45)] == 0)


def test_all_are_drawn_and_regenerated_byte_for_byte(timings, tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "METHODS", baselines.METHODS[:1])
    monkeypatch.setattr(figure8, "EXPONENTS", {"2": 2.0, "1.1": 1.1})
    monkeypatch.setattr(drawings, "DPI", 50)
    setting = Setting(fineness=0.01, bench=timings)
    first = {path.name: path.read_bytes() for path in drawings.make(tmp_path / "first", setting)}
    names = [drawing.name for drawing in drawings.DRAWINGS]
    assert set(first) == {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")} | {"captions.md"}
    # The way to the files is the same for all: of two, one has areas and the other lines.
    monkeypatch.setattr(drawings, "DRAWINGS", (figure2.FIGURE2, figure4.FIGURE4))
    again = {path.name: path.read_bytes() for path in drawings.make(tmp_path / "again", setting)}
    del again["captions.md"]
    assert len(again) == 4
    assert again.items() <= first.items()
    text = first["captions.md"].decode()
    assert [line for line in text.splitlines() if "of the paper, recomputed" in line]
    assert all(f"]({name}.svg)" in text for name in names)


def test_without_timings_one_line_names_the_command_and_the_others_are_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drawings, "DRAWINGS", (figure2.FIGURE2, figure4.FIGURE4))
    out, bench = tmp_path / "out", tmp_path / "none"
    assert command.main([f"--out={out}", f"--bench={bench}"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("figure4 is left out")
    assert "python -m scripts.bench.isotonic" in line
    assert {path.name for path in out.iterdir()} == {"figure2.png", "figure2.svg", "captions.md"}
    monkeypatch.setattr(drawings, "DRAWINGS", (figure4.FIGURE4,))
    assert command.main([f"--out={tmp_path / 'empty'}", f"--bench={bench}"]) == 1
    assert not (tmp_path / "empty").exists()
