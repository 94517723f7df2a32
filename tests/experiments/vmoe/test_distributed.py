"""V-MoE on two processes of two devices, and on one device that goes on with what these have left."""

import re
import signal

from configs.vmoe import get_config
from experiments.core.record import metrics
from experiments.core.training import train
from experiments.vmoe.experiment import RECIPE
from experiments.vmoe.suite import DEMO
from tests.experiments.processes import begin, finish, wait_for_rows
from tests.experiments.support import assert_same_rows

# Every process reads its rows of a batch. Nearly all the time is compilation: the relaxed router, which groups have to
# themselves as they do this one, is in test_exchange.py.
VARIANT = "small,router=hard"
FIELDS = DEMO | {
    "feed": "stream",
    "model.depth": 1,
    "moe.blocks": (0,),
    "batch_size": 80,
    "eval_batch_size": 160,
    "steps": 20,
    "steps_per_dispatch": 1,
    "eval_every": 4,
    "checkpoint_every": 4,
    "optimizer.warmup_steps": 4,
}


def two_processes(workdir):
    """The processes of a run, with two devices each; two parts of matrices and two of the experts."""
    fields = FIELDS | {"mesh.data": 1, "mesh.fsdp": 2, "mesh.expert": 2}
    return begin("experiments.vmoe", f"configs/vmoe.py:{VARIANT}", workdir, fields, processes=2, devices=2)


def alone(workdir):
    """A run of this process, on one device."""
    config = get_config(VARIANT)
    config.update_from_flattened_dict(FIELDS)
    del config.mesh
    train.run(RECIPE, config, workdir)


def test_two_processes_stop_together_and_one_device_goes_on_as_if_it_had_been_alone(tmp_path):
    workdir, one = tmp_path / "run", tmp_path / "one"
    processes = two_processes(workdir)
    wait_for_rows(processes, workdir, 3)  # to step 8
    processes[1].send_signal(signal.SIGTERM)
    first, second = finish(processes)
    assert "step" not in second  # only the first process reports
    (last,) = re.findall(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert 8 <= int(last) < 20
    assert not (workdir / "summary.json").exists()
    saved = workdir / "checkpoints" / last / "state"
    assert {path.name for path in saved.glob("ocdbt.process_*")} == {"ocdbt.process_0", "ocdbt.process_1"}

    alone(workdir)
    alone(one)
    losses = [row["train_loss"][0] for row in metrics.read(workdir / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 5
    assert_same_rows(workdir, one)
