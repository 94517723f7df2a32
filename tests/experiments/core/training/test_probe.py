"""What rows compare with the row before, in runs that end, go on and are several seeds."""

import dataclasses
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from experiments.core.report import results
from experiments.core.training import train
from experiments.core.training.experiment import Probe, Recipe
from tests.experiments.support import rows_without_seconds
from tests.experiments.toy import RECIPE, build, logits, toy_config

INPUTS = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)


def build_probed(config, data):
    """The toy, with the hidden units that five inputs make active, of which some change from row to row."""

    def find(params, progress):
        return {"active": logits(params, INPUTS)[1] > 0, "late": progress >= 0.5}

    def compare(before, now):
        return {"changed": {name: (before[name] != now[name]).sum(dtype=jnp.float32) for name in now}}

    return dataclasses.replace(build(config, data), probe=Probe(find, compare))


PROBED = Recipe("toy", lambda config: None, build_probed)


def changes(workdir, name):
    return [row["changed"][name] for row in metrics.read(workdir / "metrics.jsonl")]


@pytest.mark.parametrize("fields", [{}, {"seeds": (0, 1)}])
def test_rows_are_compared_with_those_before_and_go_on_to_be(tmp_path, fields, capsys):
    """Checkpoints lie between two rows, and at one."""
    whole, left = tmp_path / "whole", tmp_path / "left"
    config = toy_config(eval_every=4, checkpoint_every=6, export_probe=True, **fields)
    config.optimizer.learning_rate = 1e-2
    train.run(PROBED, config, whole)
    num_seeds = len(config.seeds)
    first, *others = changes(whole, "active")
    assert first == [None] * num_seeds
    assert all(0 < value < 5 * 512 for row in others for value in row)
    assert len({tuple(row) for row in others}) > 2
    assert changes(whole, "late")[1:] == [[value] * num_seeds for value in (0.0, 0.0, 1.0, 0.0, 0.0)]
    (run,), _ = results.load(tmp_path)
    assert run.probe["active"].shape == (num_seeds, 5, 512)
    assert run.probe["late"].tolist() == [True] * num_seeds
    # As a kill after step 18, or before the last checkpoint, would leave it.
    shutil.copytree(whole, left)
    (left / "summary.json").unlink()
    shutil.rmtree(left / "checkpoints" / "20")
    train.run(PROBED, config, left)
    assert "resuming after step 18" in capsys.readouterr().out
    assert rows_without_seconds(left) == rows_without_seconds(whole)


def test_what_a_probe_found_is_checked_when_it_is_read(tmp_path):
    train.run(PROBED, toy_config(steps=5, export_probe=True), tmp_path / "w")
    path = Workdir(tmp_path / "w").probe
    path.write_bytes(path.read_bytes()[:-1])
    _, (problem,) = results.load(tmp_path)
    assert problem.reason.startswith("probe.npz is damaged: its SHA-256 is not the one in summary.json")


def test_an_experiment_without_a_probe_is_not_asked(tmp_path):
    with pytest.raises(UsageError, match=r"^config\.export_probe=True .* False for toy, which has no probe"):
        train.run(RECIPE, toy_config(export_probe=True), tmp_path / "w")
    assert not (tmp_path / "w").exists()
