"""The experiment under the trainer: it goes on from its seed's dense model, and mistakes in the config."""

import re
import shutil

import numpy as np
import pytest

from configs.sparse_attention import get_config
from experiments.core.errors import UsageError
from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from experiments.core.training import train
from experiments.core.training.recorder import load_params
from experiments.sparse_attention.experiment import RECIPE, dense_params, of_each
from experiments.sparse_attention.task import NONE
from tests.experiments.support import set_fields

TINY = {
    "task.length": 16,
    "task.examples": 16,
    "model.width": 8,
    "model.layers": 1,
    "model.sparse": (0,),
    "model.index_width": 4,
    "batch_size": 4,
    "steps": 4,
    "steps_per_dispatch": 1,
    "eval_every": 4,
    "checkpoint_every": 4,
    "optimizer.name": "sgd",
    "optimizer.momentum": 0.0,
    "optimizer.schedule": "constant",
    "optimizer.warmup_steps": 0,
    "optimizer.clip_norm": 0.0,
    "seeds": (3, 5, 8),
}

KERNELS = ("index_query", "index_key", "qkv", "out")


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


def test_indexer_trains_alone_on_dense_model(dense, tmp_path):
    """Starts each seed from the dense model of the same seed, and counts keys."""
    config = tiny_config("straight_through", dense, seeds=(8, 3), trained="indexer", export_params=True)
    train.run(RECIPE, config, tmp_path)
    before, after = load_params(dense.parent)[1], load_params(tmp_path)[1]
    np.testing.assert_array_equal(after["positions"], before["positions"][[2, 0]])
    old, new = before["attention_0"], after["attention_0"]
    changed = {name: (new[name]["kernel"] != old[name]["kernel"][[2, 0]]).any(axis=(1, 2)).tolist() for name in KERNELS}
    assert changed == {name: 2 * [name.startswith("index")] for name in KERNELS}
    row = metrics.read(Workdir(tmp_path).metrics)[-1]
    assert row["keys_read"] == [2.0, 2.0]
    assert all(0 < keys <= 8 for keys in row["keys_with_gradient"])  # slots
    assert all(0 <= share <= 100 for share in row["test_found"])


def test_accuracy_counts_several_answers():
    """Looks for right answers among as many of the largest logits."""
    shares = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.3, 0.2]])
    targets = np.array([[NONE, NONE], [1, 3], [2, 0]])
    losses, accuracies = of_each(np.log(shares)[None], targets[None])
    np.testing.assert_allclose(losses, [-np.log(0.3 * 0.1 * 0.3 * 0.25) / 4], rtol=1e-6)
    assert accuracies.tolist() == [75.0]  # 1 of the two largest, 0 and 1; then both, as the first of equals is one


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task.length": 18}, r"config\.task\.length=18 .* multiple of 4"),
        ({"selector.k": 16}, r"config\.selector\.k=16 .* in \[1, 16\)"),
        ({"selector.spare": 15}, r"config\.selector\.spare=15 .* in \[0, 14\]"),
        ({"model.sparse": (1,)}, r"config\.model\.sparse=\(1,\)"),
        ({"trained": "head"}, r"config\.trained='head' .* all, indexer"),
        ({"pretrained": ""}, r"config\.pretrained='' .* a dense run"),
        ({"dataset": "mnist"}, r"config\.dataset='mnist' .* 'recall'"),
        ({"model.sparse": (0, 0)}, r"config\.model\.sparse=\(0, 0\) .* different"),
        (
            {"task.name": "several", "dataset": "several", "task.length": 24},
            r"config\.task\.length=24 .* multiple of 16",
        ),
    ],
)
def test_mistakes_are_named(fields, message):
    config = tiny_config("kl", "params.npz")
    config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=message):
        RECIPE.validate(config)


def test_dense_several_starts_from_recall(dense):
    config = tiny_config("dense", dense, task__name="several", seeds=(5,))
    np.testing.assert_array_equal(dense_params(config)["positions"], load_params(dense.parent)[1]["positions"][1])
    with pytest.raises(UsageError, match=r"config\.pretrained=.* several"):
        dense_params(tiny_config("kl", dense, task__name="several", seeds=(5,)))


def test_pretrained_must_be_of_a_dense_run(dense, tmp_path):
    (tmp_path / "params.npz").write_text("x")
    (tmp_path / "config.json").write_text("{}")
    for path in (tmp_path / "none" / "params.npz", tmp_path / "params.npz", dense.with_name("typo.npz")):
        with pytest.raises(UsageError, match=rf"config\.pretrained='{re.escape(str(path))}' .* params\.npz of a run"):
            dense_params(tiny_config("kl", path))
    shutil.copy(dense, tmp_path)  # of another experiment, by its config
    with pytest.raises(UsageError, match=r"config\.pretrained=.* a dense run"):
        dense_params(tiny_config("kl", tmp_path / "params.npz"))


def test_seed_without_dense_run_is_refused(dense):
    with pytest.raises(UsageError, match=r"config\.seeds=\(3, 4\) .* \[3, 5, 8\]"):
        dense_params(tiny_config("kl", dense, seeds=(3, 4)))
