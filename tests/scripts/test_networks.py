"""Networks kept for NumPy: they err as their run did, or are not kept."""

import json

import ml_collections
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset
from experiments.mnist_pruning.methods.schedules import num_kept
from scripts import networks


def test_numpy_alone_errs_as_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "NETWORKS", {"digits": networks.Kept("", "demo", "final-layers123-gradual")})
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
