"""Which figures are drawn, what they show, and that they are the same bytes every time."""

import numpy as np
import pytest
from experiments.mnist_pruning.report.curves import curve

from experiments.core.report.results import load
from experiments.mnist_pruning.report import figures
from tests.scripts.workdirs import write_workdir

START = [90.0, 88.0]


@pytest.fixture
def results(tmp_path):
    """Two sets of layers, a diverged seed, a whole run diverged, and a sweep."""
    for layers in ((1, 2, 3), (2, 3)):
        where = tmp_path / "".join(map(str, layers))
        write_workdir(where / "dense", [START, [9.0, 8.0], [4.0, 5.0]], method="dense", prune_layers=layers)
        write_workdir(where / "hard", [START, [30.0, 20.0], [None, 15.0]], method="hard", prune_layers=layers)
        write_workdir(where / "ista", [START, [None, None], [None, None]], method="ista", prune_layers=layers)
        annealed = {"lam__schedule": "geometric", "lam__start": 3.0, "debias": True}
        write_workdir(where / "annealed", [START, [9.0, 8.0], [5.0, 6.0]], prune_layers=layers, **annealed)
        write_workdir(where / "paper", [START, [19.0, 18.0], [15.0, 6.0]], prune_layers=layers, p=4 / 3)
    sweep = tmp_path / "sweep"
    for lam in (1e-3, 1e-2):
        write_workdir(sweep / f"lam{lam}", [START, [9.0, 8.0]], split="validation", lam__start=lam)
    write_workdir(sweep / "lost", [START, [None, None]], split="validation", lam__start=1.0)
    return tmp_path


def draw_only(monkeypatch, *names):
    draw = figures.draw
    monkeypatch.setattr(figures, "draw", lambda runs: {name: draw(runs)[name] for name in names})


def test_figures_are_written_and_regenerated_byte_for_byte(results, monkeypatch):
    first = {path: path.read_bytes() for path in figures.make(results)}
    assert {path.name for path in first} == {
        f"{name}.{suffix}"
        for name in (
            *("figure5-layers123", "figure5-layers23", "all-methods-layers123", "all-methods-layers23"),
            "lam-sweep",
        )
        for suffix in ("png", "svg")
    }
    draw_only(monkeypatch, "figure5-layers23", "lam-sweep")  # one of each kind
    again = {path: path.read_bytes() for path in figures.make(results)}
    assert len(again) == 4
    assert again.items() <= first.items()


def test_curves_are_means_over_seeds_against_seconds_per_seed(results):
    runs, _ = load(results)
    drawn = {run.name: curve(run) for run in runs if run.config["split"] == "test"}
    np.testing.assert_allclose(drawn["123/dense"].mean, [89.0, 8.5, 4.5])
    np.testing.assert_allclose(drawn["123/dense"].seconds, [0.0, 3.0, 6.0])
    np.testing.assert_allclose(drawn["123/hard"].mean, [89.0, 25.0, 15.0])
    assert np.isnan(drawn["123/ista"].mean[-1])
    np.testing.assert_allclose(drawn["123/hard"].density, [10.0, 10.0, 10.0])


def test_the_paper_s_figure_leaves_out_what_the_paper_has_not(results):
    drawn = figures.draw(load(results)[0])
    labels = [text.get_text() for text in drawn["figure5-layers23"].legends[0].get_texts()]
    assert len(labels) == 4
    assert not any("soft-thresholding" in label for label in labels)
    everything = [text.get_text() for text in drawn["all-methods-layers23"].legends[0].get_texts()]
    assert "soft-thresholding: diverged" in everything
    assert "hard top-k: 15.0" in everything


def test_unfinished_runs_are_left_out_and_named(results, capsys, monkeypatch):
    draw_only(monkeypatch, "lam-sweep")
    (results / "23" / "hard" / "summary.json").unlink()
    assert figures.main([str(results)]) == 0
    assert "left out of the figures: 23/hard: unfinished: epoch 2 of 2" in capsys.readouterr().err


def test_nothing_to_draw_is_said(tmp_path, capsys):
    assert figures.main([str(tmp_path)]) == 1
    assert "no finished runs" in capsys.readouterr().err
