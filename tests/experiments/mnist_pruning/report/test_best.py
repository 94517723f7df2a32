"""Every method at its best: apart from the paper's setting, with differences to the strong baselines."""

import json

import numpy as np
import pytest

from experiments.mnist_pruning.report import best, figures, naming, pictures, table
from tests.scripts.workdirs import write_workdir

START = [90.0, 90.0, 90.0]
COSINE = {"optimizer__schedule": "cosine", "optimizer__learning_rate": 0.2, "layers": {"1": 0.01, "2": 0.2, "3": 0.5}}
CUBIC = {"density_schedule__name": "cubic"}
RUNS = {
    "dense-0.05": ({"method": "dense", "density": 0.05}, [3.0, 2.9, 3.1], [70.0, 70.0, 70.0]),
    "gradual-0.02": ({"method": "gradual", "density": 0.02, **CUBIC}, [8.0, 8.2, 8.4], None),
    "movement-0.02": ({"method": "movement", "density": 0.02, **CUBIC}, [5.0, 5.1, 5.2], None),
    "annealed-0.02": (
        {"density": 0.02, "p": 1.5, "lam__start": 3.0, "hard_after": 0.9},
        [5.5, 5.2, 4.9],
        [6.0, 6.2, 6.4],
    ),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    for name, (fields, errors, hardened) in RUNS.items():
        fields = {"budget": "network", **COSINE, **fields}
        write_workdir(path / "best" / f"network-{name}", [START, errors], hardened=hardened, **fields)
    fields = RUNS["gradual-0.02"][0] | {"budget": "network", "split": "validation", **COSINE}
    write_workdir(path / "sweep/best/gradual-0.02-lr0.2", [START, [8.0, 8.0, 8.0]], **fields)
    write_workdir(path / "final-hard", [START, [12.0, 13.0, 14.0]], method="hard")
    table.make(path)
    return path


def test_differences_are_of_hardened_networks_and_of_the_whole_dense_one(directory):
    numbers = json.loads((directory / "table.json").read_text())
    (section,) = numbers["best"]
    assert (section["budget"], section["density"]) == ("network", 0.02)
    rows = {row["run"]: row for row in section["rows"]}
    assert section["rows"][0]["method"] == "dense"
    ours = rows["best/network-annealed-0.02"]
    means = {name: minus["mean"] for name, minus in ours["minus"].items()}
    assert means == pytest.approx({"dense": 3.2, "gradual": -2.0, "movement": 1.1})
    assert ours["error"]["mean"] == pytest.approx(6.2)
    assert rows["best/network-dense-0.05"]["error"]["mean"] == pytest.approx(3.0)
    assert rows["best/network-gradual-0.02"]["minus"]["gradual"] is None
    assert ours["setting"] == "p = 1.5, lam = 3, hard after 90 % of training, learning rate 0.2, cosine"
    (candidate,) = numbers["best_sweep"]
    assert (candidate["density"], candidate["setting"]) == (
        0.02,
        "cubic to 70 % of training, learning rate 0.2, cosine",
    )


def test_differences_are_to_what_trained_as_long_alone(tmp_path):
    base = {"budget": "network", "density": 0.02, **COSINE}
    for method in ("dense", "gradual", "relaxed"):
        write_workdir(tmp_path / f"best/network-{method}-0.02", [START, [8.0, 8.0, 8.0]], method=method, **base)
    write_workdir(tmp_path / "best/network-hard-0.02", [START, START, [5.0, 5.0, 5.0]], method="hard", **base)
    table.make(tmp_path)
    (section,) = json.loads((tmp_path / "table.json").read_text())["best"]
    minus = {row["run"].split("-")[1]: row["minus"] for row in section["rows"]}
    assert minus["relaxed"]["dense"]["mean"] == minus["relaxed"]["gradual"]["mean"] == 0.0
    assert set(minus["hard"].values()) == {None}


def test_settings_that_did_not_train_and_densities_that_were_not_asked_for_are_told():
    def candidate(method, *errors):
        known = [error for error in errors if error is not None]
        return {"method": method, "error": {"mean": sum(known) / len(known) if known else None, "per_seed": errors}}

    def row(method, density, minus=0.0):
        return {"method": method, "train_density": {"mean": density}, "minus": {"dense": minus}}

    sweep = [candidate("a", 10.0, 10.0), candidate("a", 10.0, 56.0), candidate("a", 10.0, None), candidate("b", 54.0)]
    rows = [row("dense", 1.0, None), row("a", 0.1), row("b", 0.015), row("lost", None)]
    numbers = {"best_sweep": sweep, "best": [{"budget": "network", "density": 0.1, "rows": rows}]}
    trained, off = best.told(numbers)
    assert trained.endswith(": a, 1 of 3; b, 1 of 1.")
    assert off.endswith(": b, 1.50 instead of 10 % of the whole network.")


def test_the_papers_setting_stays_apart(directory):
    numbers = json.loads((directory / "table.json").read_text())
    assert [row["run"] for section in numbers["final"] for row in section["rows"]] == ["final-hard"]
    assert numbers["sweep"] == []
    text = (directory / "table.md").read_text()
    assert "### Test, mnist: every method at its best, 2 % of the whole network kept" in text


def test_errors_are_drawn_against_density_and_layers_over_time(directory):
    drawn = figures.draw(naming.load(directory)[0])
    (panel,) = drawn["error-against-density"].axes
    assert {text.get_text() for text in drawn["error-against-density"].legends[0].get_texts()} == {
        "dense",
        "gradual magnitude pruning",
        "movement pruning",
        "relaxed top-k, p = 1.5",
    }
    assert len(panel.containers) == 3
    panels = [axes for axes in drawn["density-over-time"].axes if axes.get_visible()]
    assert len(panels) == 3
    for line, share in zip(panels[0].get_lines(), (1.0, 20.0, 50.0), strict=True):
        assert line.get_ydata() == pytest.approx([share, share])


@pytest.mark.parametrize("exported", ["trained/network", "network"])  # the latter of the runs that are committed
def test_pictures_are_of_the_weights_of_the_forward_pass(tmp_path, exported):
    learned = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
    fields = {"lam__schedule": "geometric", "lam__start": 3.0, "hard_after": 0.9, "debias": True}
    write_workdir(tmp_path / "pictures/annealed", [[90.0], [5.0]], prune_layers=(1,), **fields)
    arrays = {"network/1/kernel": np.zeros_like(learned), f"{exported}/1/kernel": learned}
    np.savez(tmp_path / "pictures/annealed/params.npz", **arrays)
    runs, _ = naming.load(tmp_path)
    (found,) = pictures.load(runs, tmp_path).values()
    assert np.count_nonzero(pictures.first_layer(*found)) == 64
    np.testing.assert_array_equal(pictures.first_layer(*found, method="dense"), learned)
    written = {path.stem for path in figures.make(tmp_path)}
    assert written == {"first-layer", "lam-falling"}


def test_a_second_network_has_a_table_of_its_own_without_a_line_for_each_of_its_matrices(tmp_path):
    layers = {f"block.{i}": 0.02 for i in range(13)}
    for method, errors in {"dense": [60.0, 61.0], "gradual": [66.0, 66.0], "movement": [63.0, 64.0]}.items():
        path = tmp_path / "best" / f"network-{method}-0.02"
        fields = {"density": 0.02, "optimizer__learning_rate": 1e-3}
        write_workdir(path, [[95.0, 95.0], errors], variant=f"{method},network=vit", layers=layers, **fields)
    write_workdir(tmp_path / "best" / "network-hard-0.02", [START, START], method="hard", density=0.02)
    written = {path.stem for path in figures.make(tmp_path)}
    assert written == {"error-against-density-cifar100-vit", "error-against-density"}
    table.make(tmp_path)
    text = (tmp_path / "table.md").read_text()
    title = "### Test, cifar100-vit: every method at its best, 2 % of the whole network kept"
    section = text.partition(title)[2].partition("###")[0]
    assert "| movement pruning | cubic to 70 % of training, learning rate 1e-3, cosine | 63.50 ± 6.35 |" in section
    assert "hard" not in section
    assert "| +3.00 ± 0.00 | -2.50 ± 6.35 | - |" in section


def test_a_single_run_of_the_second_network_is_reported(tmp_path):
    write_workdir(tmp_path / "mine", [[95.0, 95.0], [60.0, 61.0]], variant="hard,network=vit")
    table.make(tmp_path)
    title = "### Test, cifar100-vit: 10 % of every matrix but embeddings kept, "
    assert title in (tmp_path / "table.md").read_text()
    assert {path.stem for path in figures.make(tmp_path)} == {"figure5-layersall"}
