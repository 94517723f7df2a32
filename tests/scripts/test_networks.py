"""Files for NumPy give what their run measured, or are not kept."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from configs.learned_masks import get_config
from experiments.core.errors import UsageError
from experiments.core.input import dataset
from experiments.core.suite import plan
from experiments.mnist_pruning.methods.schedules import num_kept
from experiments.vision.efficientnet import LAST_BLOCK
from scripts import networks
from tests.experiments.learned_masks.test_experiment import DATA, build, variables  # noqa: F401


def test_numpy_alone_errs_as_the_run(tmp_path, monkeypatch):
    suite = plan.find("experiments.mnist_pruning.suite")
    (run,) = (run for run in suite.presets["demo"]() if run.name == "final-layers123-gradual")
    short = {"epochs": 2, "checkpoint_every": 2, "hidden": (16,), "prune_layers": (1, 2)}
    run = dataclasses.replace(run, setting={**run.setting, **short})
    monkeypatch.setattr(plan, "find", lambda name: dataclasses.replace(suite, presets={"short": lambda: [run]}))
    of_digits = networks.NETWORKS["mnist-300-100"]._replace(results="", preset="short", run=run.name)
    monkeypatch.setattr(networks, "NETWORKS", {"digits": of_digits})
    monkeypatch.setattr(networks, "DIRECTORY", tmp_path / "networks")
    (tmp_path / "networks").mkdir()
    file, record = networks.make("digits")
    config, final = (json.loads(record.read_text())[part] for part in ("config", "final"))
    with np.load(file) as arrays:
        kept = dict(arrays)
    assert np.count_nonzero(kept["W1"]) == num_kept(config["density"], kept["W1"].size)
    (*_, row) = networks.blocks(tmp_path)["networks"]
    error = final["hardened_error"]["mean"]
    assert f" {error:.2f} %" in row
    data = dataset.load(ml_collections.ConfigDict(config))
    networks.require_same(of_digits, kept, data, final)
    with pytest.raises(UsageError, match=rf"give {error:.2f} %.* gave {error + 1:.2f} %"):
        networks.require_same(of_digits, kept, data, {"hardened_error": {"mean": error + 1}})


def test_masked_accuracy_matches_the_run(build, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(networks, "FIRST_BLOCK", LAST_BLOCK)
    made = build("edge_popup", "fifth")
    params = made.init(jax.random.key(0))
    config = get_config("method=edge_popup,pattern=fifth")
    config.pretrained = str(tmp_path / "params.npz")
    kept = networks.masks(params, config, DATA)
    assert kept.keys() == {*params["scores"], "classifier/kernel", "classifier/bias"}
    found = jax.jit(made.evaluate)(params, DATA.evaluation, jnp.float32(1))
    assert networks.masked_accuracy(kept, DATA) == pytest.approx(float(found["test_accuracy"].mean()))


def test_top3_accuracy_counts_three_largest():
    data = dataclasses.replace(DATA, evaluation={"image": np.eye(4), "label": np.array([0, 1, 2, 3])})
    kept = {"kernel": np.tile([4.0, 3.0, 2.0, 1.0], (4, 1)), "bias": np.array([0.0, 0.0, 0.0, 1.5])}
    assert networks.top3_accuracy(kept, data) == 75.0


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_committed_files_match_their_page(name):
    with np.load(networks.DIRECTORY / f"{name}.npz") as arrays:
        kept = dict(arrays)
    if name == "mnist-300-100":
        weights = [array for part, array in kept.items() if part.startswith("W")]
        assert sum(map(np.count_nonzero, weights)) == num_kept(0.02, sum(array.size for array in weights))
    if name == "cifar100-mask":
        masks = [array for array in kept.values() if array.dtype == bool]
        assert sum(array.size for array in masks) > 2_400_000
        assert [array.mean() for array in masks] == pytest.approx(len(masks) * [0.2], abs=1e-4)
    if name == "vmoe-router":
        assert networks.choices_alike(kept, DATA) == 100.0
        assert all((kept[f"block_{block}/taken"].sum(axis=0) == 28).all() for block in (0, 1))


def test_an_unknown_network_is_named():
    with pytest.raises(UsageError, match=r"'nothing' is not one of mnist-300-100"):
        networks.main(["nothing"])
