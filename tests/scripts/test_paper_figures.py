"""The numbers behind the paper's figures, and that captions tell of all."""

import json
import re

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments.core.report import making
from experiments.core.report.style import save
from scripts.paper_figures import __main__ as command
from scripts.paper_figures import operators, solvers
from scripts.paper_figures.style import SHEET
from scripts.report import RESULTS


def test_figure_1_matches_golden_values(x64):
    """Breaks the line of the hard operator where it jumps."""
    s = np.linspace(*operators.MASK_RANGE, 21)
    lines = {p: operators.selected(s, p) for p in (None, 2.0)}
    places = [np.flatnonzero(np.isclose(s, place)).item() for place in (0.0, 0.5, 1.5, 2.0, 3.0, 4.0, 5.0)]
    np.testing.assert_allclose(lines[2.0][places], [1, 0.916667, 0.083333, 0, 0, 0.5, 1], atol=1e-6)
    for line in lines.values():
        assert np.all(line[(s > 1.7) & (s < 3.3)] == 0)
    gaps = [np.isnan(operators.broken(s, line)[1]).sum() for line in lines.values()]
    assert gaps == [2, 0]


def test_figure_4_draws_the_bench_records(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "FIGURES", {"figure4": command.FIGURES["figure4"]})
    monkeypatch.setattr(command, "BENCH", tmp_path)
    assert making.on_directory("figures", "", command.make, [str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "python -m scripts.bench --only=isotonic,exactness" in line
    rows = [
        {"way": way, "n": n, "k": n // 10, "lam": 0.1, "max_abs_error": 1e-7, "median_ms": 2.0 * n}
        | {"lower_quartile_ms": 1.0 * n, "upper_quartile_ms": 3.0 * n}
        for way in solvers.LOOKS
        for n in (100, 1000)
    ]
    environment = {"devices": {"platform": "cpu", "kind": "cpu"}, "machine": {"cpu": "AMD EPYC", "cores": 2}}
    section = {"environment": environment, "settings": {"lam": 0.1}, "rows": rows}
    (tmp_path / "cpu.json").write_text(json.dumps(dict.fromkeys(("isotonic", "exactness"), section)))
    with mpl.rc_context(SHEET):
        time, error, _ = solvers.figure4(tmp_path).axes
    assert len(time.get_lines()) == len(solvers.LOOKS)
    assert {tuple(line.get_ydata()) for line in time.get_lines()} == {(200.0, 2000.0)}
    quartiles = time.collections[0].get_paths()[0].vertices[:, 1]
    assert (quartiles.min(), quartiles.max()) == (100.0, 3000.0)
    assert {tuple(line.get_ydata()) for line in error.get_lines()} == {(1e-7, 1e-7), (1e-3, 1e-3)}


def test_all_are_drawn(monkeypatch):
    """With simple functions for the operators, and without what is drawn from records."""
    monkeypatch.setattr(operators, "selected", lambda s, p: np.clip(s / 5, 0, 1))
    monkeypatch.setattr(operators, "kept", lambda x1, x2, p: np.stack([x1, x2]) * (np.abs(x1) > 1))
    monkeypatch.setattr(operators, "topk_conjugate", lambda y, k, phi: -y[:, 0] / k)
    with mpl.rc_context(SHEET):
        for name in command.FIGURES.keys() - {"figure4"}:
            command.FIGURES[name]().draw_without_rendering()


def test_a_drawing_has_the_same_bytes_again(tmp_path):
    with mpl.rc_context(SHEET):
        figure = Figure()
        figure.subplots().plot([0, 1])
        first, again = (save(figure, tmp_path / "one.svg").read_bytes() for _ in range(2))
    assert first == again


def test_captions_cover_committed_figures():
    text = (RESULTS / "figures" / "captions.md").read_text()
    assert set(re.findall(r"\((\w+\.svg)\)", text)) == {f"{name}.svg" for name in command.FIGURES}
    assert {path.name for path in (RESULTS / "figures").glob("*.*g")} == {f"{name}.svg" for name in command.FIGURES}
