"""The numbers behind the paper's figures, and that the same bytes are drawn every time."""

import itertools
import json
import re

import numpy as np
import pytest

from ops.norms import k_support_negentropy
from scripts import sections
from scripts.bench import isotonic
from scripts.bench.timing import Budget, Contest
from scripts.paper_figures import __main__ as command
from scripts.paper_figures import operators, solvers
from scripts.report import RESULTS


@pytest.fixture(scope="module")
def timings(tmp_path_factory):
    """A directory with a small benchmark of the isotonic solvers."""
    directory = tmp_path_factory.mktemp("bench")
    shape, budget = isotonic.shape_of(200), Budget(0.05, fewest=5, most=400)
    path = directory / "cpu.json"
    environment = {"devices": {"platform": "cpu", "kind": "cpu"}, "machine": {"cpu": "AMD EPYC", "cores": 2}}
    for section, found in {
        "isotonic": isotonic.measure_times(shape, budget, Contest()),
        "exactness": isotonic.measure_errors(shape, [0.1], Contest()),
    }.items():
        sections.write(path, {"environment": environment, "settings": {"lam": 0.1}, **found}, section)
    return directory


def test_figure_1_shows_the_golden_values_and_does_not_connect_jumps(x64):
    s = np.linspace(*operators.MASK_RANGE, 21)
    lines = {p: operators.selected(s, p) for p in (None, 2.0, 4 / 3)}
    places = [np.flatnonzero(np.isclose(s, place)).item() for place in (0.0, 0.5, 1.5, 2.0, 3.0, 4.0, 5.0)]
    np.testing.assert_allclose(lines[2.0][places], [1, 0.916667, 0.083333, 0, 0, 0.5, 1], atol=1e-6)
    np.testing.assert_allclose(lines[4 / 3][places], [1, 0.995495, 0.004505, 0, 0, 0.5, 1], atol=1e-6)
    for line in lines.values():
        assert np.all(line[(s > 1.7) & (s < 3.3)] == 0)
    gaps = [np.isnan(operators.broken(s, line)[1]).sum() for line in lines.values()]
    assert gaps == [2, 0, 0]


def test_figure_2_has_a_triangle_a_hexagon_and_a_triangle(x64):
    for w, *_ in operators.POLYTOPES:
        found = operators.vertices(w)
        assert {tuple(y) for y in found} == set(itertools.permutations(w))
        x, y = operators.plane(found).T
        twice_area = np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
        # In units of the simplex: the hexagon lacks three corners of side 1/3, the capped simplex has side 1/2.
        ratio = {1.0: 1.0, 2 / 3: 1 - 3 / 9, 1 / 2: 1 / 4}[max(w)]
        assert twice_area == pytest.approx(ratio * np.sqrt(3) / 2)  # counter-clockwise: positive


def test_figure_3_jumps_when_hard_has_kinks_for_p_2_and_none_for_smaller_p(x64):
    along = np.linspace(0.2, 0.8, 462)
    step = along[1] - along[0]
    x1 = along.reshape(22, 21)
    kept = {p: operators.kept(x1, np.zeros_like(x1), p).sum(axis=0).ravel() for p in (None, 2.0, 4 / 3)}
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
    assert {row["way"] for row in times} == {*isotonic.SOLVERS, "lax.top_k", "jnp.sort"} == set(solvers.LOOKS)
    assert all(row["lower_quartile_ms"] <= row["median_ms"] <= row["upper_quartile_ms"] for row in times)
    assert {(row["n"], row["k"], row["lam"]) for row in errors} == {(200, 20, 0.1)}
    error = {row["way"]: row["max_abs_error"] for row in errors}
    assert set(error) == set(isotonic.SOLVERS)
    assert max(error["PAV"], error["scalar equation"]) < 1e-5
    assert error["Dykstra, 10 iterations"] > error["Dykstra, 100 iterations"] > 1e-9


def test_ways_are_left_out_above_their_size(monkeypatch):
    monkeypatch.setattr(isotonic, "SOLVERS", {"PAV": isotonic.SOLVERS["PAV"]})
    monkeypatch.setattr(isotonic, "_LONGEST", 15)
    rows = [row for n in (10, 20) for row in isotonic.measure_errors(isotonic.shape_of(n), [0.1], Contest())["rows"]]
    assert [row["n"] for row in rows] == [10]


def test_of_400_tokens_an_expert_takes_28_as_in_the_paper():
    assert [isotonic.shape_of(n).k for n in (300, 400, 1000)] == [30, 28, 100]


def test_figure_9_is_shannon_s_negentropy_for_k_3_and_lowest_on_the_capped_simplex(x64):
    def negentropy(y, k):
        return np.asarray(k_support_negentropy(y, k))

    y = operators.grid(21)
    np.testing.assert_allclose(y.sum(axis=1), 1.0)
    assert len(y) == 21 * 22 // 2
    logarithms = np.log(np.where(y > 0, y, 1.0))
    np.testing.assert_allclose(negentropy(y, 3), (y * logarithms).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(negentropy(y, 1), 0.0, atol=1e-12)
    capped = np.all(y <= 0.5, axis=1)
    np.testing.assert_allclose(negentropy(y[capped], 2), -np.log(2.0), atol=1e-12)
    assert negentropy(y[~capped], 2).min() > -np.log(2.0) + 1e-4


def test_all_are_drawn_and_regenerated_byte_for_byte(timings, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "DPI", 50)
    monkeypatch.setattr(command, "BENCH", timings)
    monkeypatch.setattr(operators, "EXPONENTS", {"2": 2.0})
    first = {path.name: path.read_bytes() for path in command.make(tmp_path / "first")}
    assert set(first) == {f"{name}.{suffix}" for name in command.FIGURES for suffix in ("png", "svg")}
    # The way to the files is the same for all: of two, one has areas and the other lines.
    monkeypatch.setattr(command, "FIGURES", {name: command.FIGURES[name] for name in ("figure2", "figure4")})
    again = {path.name: path.read_bytes() for path in command.make(tmp_path / "again")}
    assert len(again) == 4
    assert again.items() <= first.items()


def test_without_timings_one_line_names_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "FIGURES", {"figure4": command.FIGURES["figure4"]})
    monkeypatch.setattr(command, "BENCH", tmp_path)
    assert command.main([f"--out={tmp_path}"]) == 2
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
