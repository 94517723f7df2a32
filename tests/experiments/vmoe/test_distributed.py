"""V-MoE on one device, on eight, and on two processes of four, with the experts divided among all of them."""

import contextlib
import io
import re
import shutil
import signal

from configs.vmoe import get_config
from experiments.core import metrics, train
from experiments.vmoe.experiment import RECIPE
from experiments.vmoe.suite.presets import DEMO
from tests.experiments.processes import begin, finish, wait_for_rows
from tests.experiments.support import assert_same_rows

FIELDS = DEMO | {
    "model.depth": 1,
    "moe.blocks": (0,),
    "batch_size": 80,
    "eval_batch_size": 160,
    "steps": 12,
    "steps_per_dispatch": 1,
    "eval_every": 4,
    "checkpoint_every": 5,
    "optimizer.warmup_steps": 4,
}


def two_processes(workdir):
    """The processes of a run, with four devices each; eight experts on as many devices."""
    fields = FIELDS | {"mesh.data": 1, "mesh.expert": 8}
    return begin("experiments.vmoe", "configs/vmoe.py:small,router=relaxed", workdir, fields, processes=2, devices=4)


def alone(workdir, devices):
    """A run of this process, on so many of its devices; what it printed."""
    config = get_config("small,router=relaxed")
    config.update_from_flattened_dict(FIELDS | {"mesh.data": 1, "mesh.expert": devices})
    if devices == 1:
        del config.mesh
    with contextlib.redirect_stdout(io.StringIO()) as out:
        train.run(RECIPE, config, workdir)
    return out.getvalue()


def test_one_device_eight_and_two_processes_of_four_train_alike_whole_or_stopped_and_resumed(tmp_path):
    """One test, as all compare with the run of two processes that nothing interrupts."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finish(two_processes(whole))
    alone(tmp_path / "eight", 8)
    alone(tmp_path / "one", 1)
    losses = [row["train_loss"][0] for row in metrics.read(whole / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 3
    assert_same_rows(whole, tmp_path / "eight")
    assert_same_rows(whole, tmp_path / "one")

    processes = two_processes(stopped)
    wait_for_rows(processes, stopped, 2)
    processes[1].send_signal(signal.SIGTERM)
    first, _ = finish(processes)
    last = re.search(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert last, first
    assert int(last[1]) < 12
    assert not (stopped / "summary.json").exists()
    parts = {path.name for path in (stopped / "checkpoints" / last[1] / "state").glob("ocdbt.process_*")}
    assert parts == {"ocdbt.process_0", "ocdbt.process_1"}
    shutil.copytree(stopped, tmp_path / "stopped-one")
    for out in (alone(stopped, 8), alone(tmp_path / "stopped-one", 1)):
        assert f"resuming after step {last[1]}\n" in out
    assert_same_rows(stopped, whole)
    assert_same_rows(tmp_path / "stopped-one", whole)
