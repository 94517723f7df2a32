"""The experiment under the trainer: it goes on from its seed's dense model, and mistakes in the config."""

import numpy as np
import pytest

from configs.sparse_attention import get_config
from experiments.core.errors import UsageError
from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from experiments.core.training import train
from experiments.core.training.recorder import load_params
from experiments.sparse_attention.experiment import RECIPE, dense_params
from tests.experiments.support import set_fields

TINY = {
    "task.length": 16,
    "task.examples": 16,
    "model.width": 8,
    "model.index_width": 4,
    "batch_size": 4,
    "steps": 4,
    "steps_per_dispatch": 2,
    "eval_every": 4,
    "checkpoint_every": 4,
    "optimizer.warmup_steps": 0,
    "seeds": (3, 5, 8),
}


def tiny_config(selector="dense", pretrained="", **fields):
    config = get_config(f"selector={selector}")
    set_fields(config, fields, TINY)
    config.pretrained = str(pretrained)
    return config


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """The exported parameters of a dense run of three seeds."""
    workdir = tmp_path_factory.mktemp("dense")
    train.run(RECIPE, tiny_config(), workdir)
    return Workdir(workdir).params


def test_every_seed_begins_with_its_own_dense_model(dense, tmp_path):
    config = tiny_config("frozen", dense, seeds=(8, 3), trained="indexer", export_params=True)
    train.run(RECIPE, config, tmp_path)  # no score gets a gradient, so that nothing changes
    before, after = load_params(dense.parent)[1], load_params(tmp_path)[1]
    for name in ("Dense_0", "positions"):
        old, new = (tree[name]["kernel"] if name == "Dense_0" else tree[name] for tree in (before, after))
        np.testing.assert_array_equal(new, old[[2, 0]])


def test_an_indexer_learns_alone_and_its_keys_are_counted(dense, tmp_path):
    config = tiny_config("straight_through", dense, seeds=(5,), trained="indexer", export_params=True)
    train.run(RECIPE, config, tmp_path)
    before, after = dense_params(config), load_params(tmp_path)[1]
    moved = {
        name: bool((np.asarray(after["attention_1"][name]["kernel"]) != before["attention_1"][name]["kernel"]).any())
        for name in ("index_query", "index_key", "qkv", "out")
    }
    assert moved == {"index_query": True, "index_key": True, "qkv": False, "out": False}
    row = metrics.read(Workdir(tmp_path).metrics)[-1]
    assert row["keys_read"] == [2.0]
    assert 0 < row["keys_with_gradient"][0] <= 8  # slots
    assert 0 <= row["test_found"][0] <= 100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task.length": 18}, r"config\.task\.length=18 .* multiple of 4"),
        ({"selector.k": 16}, r"config\.selector\.k=16 .* in \[1, 16\)"),
        ({"selector.spare": 15}, r"config\.selector\.spare=15 .* in \[0, 14\]"),
        ({"model.sparse": (2,)}, r"config\.model\.sparse=\(2,\)"),
        ({"trained": "head"}, r"config\.trained='head' .* all, indexer"),
        ({"pretrained": ""}, r"config\.pretrained='' .* a dense run"),
    ],
)
def test_mistakes_are_named(fields, message):
    config = tiny_config("kl", "params.npz")
    config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=message):
        RECIPE.validate(config)


def test_a_seed_that_the_dense_run_lacks_is_named(dense):
    with pytest.raises(UsageError, match=r"config\.seeds=\(3, 4\) .* \[3, 5, 8\]"):
        dense_params(tiny_config("kl", dense, seeds=(3, 4)))
