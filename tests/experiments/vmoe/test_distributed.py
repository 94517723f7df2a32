"""V-MoE on one device, on eight, and on two processes of four, with the experts divided among all of them."""

import re
import shutil
import signal

import pytest

from experiments.core import metrics
from experiments.vmoe.suite.presets import DEMO
from tests.experiments.processes import begin, finish, wait_for_rows
from tests.experiments.support import assert_same_rows

FIELDS = DEMO | {
    "model.depth": 1,
    "moe.blocks": (0,),
    "batch_size": 80,
    "eval_batch_size": 160,
    "steps": 20,
    "steps_per_dispatch": 1,
    "eval_every": 4,
    "checkpoint_every": 6,
    "optimizer.warmup_steps": 4,
}


def run(workdir, processes, devices):
    """The processes of a run, as many as given, with so many devices each; eight experts on as many devices."""
    fields = FIELDS | {"mesh.data": 1, "mesh.expert": processes * devices}
    config = "configs/vmoe.py:small,router=relaxed"
    return begin("experiments.vmoe", config, workdir, fields, processes=processes, devices=devices)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of two processes with four devices each, without interruption."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    finish(run(workdir, 2, 4))
    return workdir


def test_one_device_eight_and_two_processes_of_four_train_alike(whole, tmp_path):
    finish(run(tmp_path / "eight", 1, 8) + run(tmp_path / "one", 1, 1))
    losses = [row["train_loss"][0] for row in metrics.read(whole / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 5
    assert_same_rows(whole, tmp_path / "eight")
    assert_same_rows(whole, tmp_path / "one")


def test_stopped_by_a_signal_to_one_process_it_goes_on_elsewhere_with_the_same_metrics(whole, tmp_path):
    workdir = tmp_path / "eight"
    processes = run(workdir, 2, 4)
    wait_for_rows(processes, workdir, 2)
    processes[1].send_signal(signal.SIGTERM)
    first, _ = finish(processes)
    stopped = re.search(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert stopped, first
    parts = {path.name for path in (workdir / "checkpoints" / stopped[1] / "state").glob("ocdbt.process_*")}
    assert parts == {"ocdbt.process_0", "ocdbt.process_1"}
    shutil.copytree(workdir, tmp_path / "one")
    for out in finish(run(workdir, 1, 8) + run(tmp_path / "one", 1, 1)):
        assert f"resuming after step {stopped[1]}\n" in out
    assert_same_rows(workdir, whole)
    assert_same_rows(tmp_path / "one", whole)
