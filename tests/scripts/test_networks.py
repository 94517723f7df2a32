"""Networks kept for NumPy: they err as their run did, or are not kept."""

import dataclasses
import json

import ml_collections
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset
from experiments.core.suite import plan
from experiments.mnist_pruning.methods.schedules import num_kept
from scripts import networks


def test_numpy_alone_errs_as_the_run(tmp_path, monkeypatch):
    suite = plan.find("experiments.mnist_pruning.suite")
    (run,) = (run for run in suite.presets["demo"]() if run.name == "final-layers123-gradual")
    short = {"epochs": 2, "checkpoint_every": 2, "hidden": (16,), "prune_layers": (1, 2)}
    run = dataclasses.replace(run, setting={**run.setting, **short})
    monkeypatch.setattr(plan, "find", lambda name: dataclasses.replace(suite, presets={"short": lambda: [run]}))
    monkeypatch.setattr(networks, "NETWORKS", {"digits": networks.Kept("", "short", run.name)})
    monkeypatch.setattr(networks, "DIRECTORY", tmp_path / "networks")
    (tmp_path / "networks").mkdir()
    file, record = networks.make("digits")
    config, final = (json.loads(record.read_text())[part] for part in ("config", "final"))
    with np.load(file) as arrays:
        kept = dict(arrays)
    assert np.count_nonzero(kept["W1"]) == num_kept(config["density"], kept["W1"].size)
    (*_, row) = networks.blocks(tmp_path)["networks"]
    error = final["hardened_error"]["mean"]
    assert f"| {error:.2f} |" in row
    data = dataset.load(ml_collections.ConfigDict(config))
    networks.require_error(kept, data, error)
    with pytest.raises(UsageError, match=rf"in {error:.2f} % .* in {error + 1:.2f} %"):
        networks.require_error(kept, data, error + 1)


def test_an_unknown_network_is_named():
    with pytest.raises(UsageError, match=r"'nothing' is not one of mnist-300-100"):
        networks.main(["nothing"])
