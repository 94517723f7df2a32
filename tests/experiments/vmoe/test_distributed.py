"""V-MoE on one device, on eight, and on two processes of four, with the experts divided among all of them."""

import re
import shutil
import signal

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


def test_one_device_eight_and_two_processes_of_four_train_alike_whole_or_stopped_and_resumed(tmp_path):
    """One test, as all compare with the run of two processes that nothing interrupts."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finish(run(whole, 2, 4))
    finish(run(tmp_path / "eight", 1, 8) + run(tmp_path / "one", 1, 1))
    losses = [row["train_loss"][0] for row in metrics.read(whole / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 5
    assert_same_rows(whole, tmp_path / "eight")
    assert_same_rows(whole, tmp_path / "one")

    processes = run(stopped, 2, 4)
    wait_for_rows(processes, stopped, 2)
    processes[1].send_signal(signal.SIGTERM)
    first, _ = finish(processes)
    last = re.search(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert last, first
    assert int(last[1]) < 20
    assert not (stopped / "summary.json").exists()
    parts = {path.name for path in (stopped / "checkpoints" / last[1] / "state").glob("ocdbt.process_*")}
    assert parts == {"ocdbt.process_0", "ocdbt.process_1"}
    shutil.copytree(stopped, tmp_path / "stopped-one")
    for out in finish(run(stopped, 1, 8) + run(tmp_path / "stopped-one", 1, 1)):
        assert f"resuming after step {last[1]}\n" in out
    assert_same_rows(stopped, whole)
    assert_same_rows(tmp_path / "stopped-one", whole)
