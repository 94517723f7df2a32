"""What rows compare with the row before, in runs that end, go on and are several seeds."""

import dataclasses
import shutil

import jax.numpy as jnp
import numpy as np

from experiments.core.record import metrics
from experiments.core.training import train
from experiments.core.training.experiment import Probe, Recipe
from tests.experiments.support import rows_without_seconds
from tests.experiments.toy import build, logits, toy_config

INPUTS = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)


def build_probed(config, data):
    """The toy, with the hidden units that five inputs make active, of which some change from row to row."""

    def find(params, progress):
        return {"active": logits(params, INPUTS)[1] > 0, "late": progress >= 0.5}

    def compare(before, now):
        return {"changed": {name: (before[name] != now[name]).sum(dtype=jnp.float32) for name in now}}

    return dataclasses.replace(build(config, data), probe=Probe(find, compare))


PROBED = Recipe("toy", lambda config: None, build_probed)


def test_probe_compares_rows_across_resume(tmp_path, capsys):
    """Checkpoints lie between two rows, and at one."""
    whole, left = tmp_path / "whole", tmp_path / "left"
    config = toy_config(eval_every=4, checkpoint_every=6, seeds=(0, 1))
    config.optimizer.learning_rate = 1e-2
    train.run(PROBED, config, whole)
    changed = [row["changed"] for row in metrics.read(whole / "metrics.jsonl")]
    assert changed[0]["active"] == [None, None]
    assert all(0 < value < 5 * 512 for row in changed[1:] for value in row["active"])
    assert len({tuple(row["active"]) for row in changed[1:]}) > 2
    assert [row["late"] for row in changed[1:]] == [[value] * 2 for value in (0.0, 0.0, 1.0, 0.0, 0.0)]
    # As a kill after step 18, or before the last checkpoint, would leave it.
    shutil.copytree(whole, left)
    (left / "summary.json").unlink()
    shutil.rmtree(left / "checkpoints" / "20")
    train.run(PROBED, config, left)
    assert "resuming after step 18" in capsys.readouterr().out
    assert rows_without_seconds(left) == rows_without_seconds(whole)


def test_a_probe_may_find_nothing(tmp_path):
    """As in a network without a router."""
    nothing = Probe(lambda params, progress: {}, lambda before, now: {})
    recipe = Recipe("toy", lambda config: None, lambda *of: dataclasses.replace(build(*of), probe=nothing))
    train.run(recipe, toy_config(eval_every=20, checkpoint_every=20), tmp_path)
    assert len(metrics.read(tmp_path / "metrics.jsonl")) == 2
