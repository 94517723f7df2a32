"""The launcher on this machine, with the real training command."""

import json
import re

import pytest

from tests.scripts.launch.conftest import commands

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections


def local(workdir, *options):
    return ["local", "mnist_pruning", "--config=configs/mnist_pruning.py:dense", f"--workdir={workdir}", *options]


def test_run_trains_until_done(tmp_path, launch):
    digits = ["--config.dataset=digits", "--config.seeds=(0,)", "--config.epochs=2", "--config.checkpoint_every=2"]
    digits += ["--config.hidden=()", "--config.prune_layers=(1,)"]  # to compile takes as long as the layers are many
    arguments = [*local(tmp_path / "run", "--devices=1"), "--", *digits]
    status, said, err = launch(*arguments, check=True)
    assert (status, err) == (0, "")
    assert re.search(r"mnist_pruning +done +epoch 2/2", said)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "done"
    assert "epoch 2/2" in (tmp_path / "run" / "logs" / "process-0.log").read_text()
    assert "mnist_pruning: was done" in launch(*arguments)[1]


def test_dry_run_prints_every_process(tmp_path, launch):
    sweep = "--sweep=config.optimizer.learning_rate=0.1,0.05"
    status, out, _ = launch(*local(tmp_path / "no", sweep, "--dry_run", "--processes=2", "--devices=4"))
    assert status == 0
    assert not (tmp_path / "no").exists()
    assert len(commands(out)) == 4
    program, address, *rest = commands(out)[1]
    assert program == "env"
    assert re.fullmatch(r"JAX_COORDINATOR_ADDRESS=127\.0\.0\.1:\d+", address)
    assert rest[:4] == ["JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1", "JAX_PLATFORMS=cpu", "JAX_NUM_CPU_DEVICES=4"]
    assert rest[-2:] == [f"--workdir={tmp_path}/no/optimizer.learning_rate=0.1", "--config.optimizer.learning_rate=0.1"]
