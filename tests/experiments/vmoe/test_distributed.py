"""V-MoE on two processes of two devices, on eight of one process, and on one device, however often interrupted.

One process of two is killed; both go on from what is intact; one is told to stop; two slices of four devices finish.
"""

import contextlib
import io
import re
import shutil
import signal
import time

import pytest

from configs.vmoe import get_config
from experiments.core.record import checksums, metrics
from experiments.core.training import train
from experiments.vmoe.experiment import RECIPE
from experiments.vmoe.suite import DEMO
from tests.experiments.processes import begin, ended, finish, wait_for_rows
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


def alone(workdir, fields=FIELDS, **mesh):
    """A run of this process; what it printed."""
    config = get_config(VARIANT)
    config.update_from_flattened_dict(fields)
    if mesh:
        config.mesh.update(mesh)
    else:
        del config.mesh
    with contextlib.redirect_stdout(io.StringIO()) as out:
        train.run(RECIPE, config, workdir)
    return out.getvalue()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The workdir of a run of which one process of two was killed, and how the other ended."""
    workdir = tmp_path_factory.mktemp("distributed") / "run"
    processes = two_processes(workdir)
    wait_for_rows(processes, workdir, 3)
    while not (workdir / "checkpoints" / "8" / checksums.NAME).exists():
        assert processes[0].poll() is None
        time.sleep(0.002)
    processes[1].kill()
    other, (status, _, _) = ended(processes, timeout=600)
    assert status == -signal.SIGKILL
    return workdir, other


@pytest.fixture(scope="module")
def stopped(killed):
    """What both printed when they went on from what was intact, until one of them was told to stop."""
    workdir, _ = killed
    (workdir / "checkpoints" / "8" / "state" / "_METADATA").write_bytes(b"{")
    processes = two_processes(workdir)
    wait_for_rows(processes, workdir, 4)  # to step 12
    processes[1].send_signal(signal.SIGTERM)
    return workdir, finish(processes)


def last_step(first):
    """The step after which both stopped, by what the first process printed."""
    last = re.search(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert last, first
    return last[1]


def test_when_one_process_of_two_is_killed_the_other_fails(killed):
    _, (status, _, err) = killed
    assert status not in (0, -signal.SIGKILL)
    assert "Traceback" in err or "another task died" in err


def test_both_go_on_from_what_is_intact_and_a_signal_to_one_stops_both(stopped):
    workdir, (first, second) = stopped
    assert "the checkpoint of step 8 is damaged (state/_METADATA is not what was saved)" in first
    assert "resuming after step 4" in first
    assert "step" not in second  # only the first process reports
    last = last_step(first)
    assert 12 <= int(last) < 20
    assert not (workdir / "summary.json").exists()
    parts = {path.name for path in (workdir / "checkpoints" / last / "state").glob("ocdbt.process_*")}
    assert parts == {"ocdbt.process_0", "ocdbt.process_1"}


def test_two_slices_of_four_finish_it_and_it_has_trained_as_on_one_device(stopped, tmp_path):
    workdir, (first, _) = stopped
    shutil.copytree(workdir, tmp_path / "elsewhere")
    out = alone(tmp_path / "elsewhere", data=2, fsdp=2, expert=2, slices=2)
    assert f"resuming after step {last_step(first)}\n" in out
    alone(tmp_path / "one", FIELDS | {"checkpoint_every": 20})
    losses = [row["train_loss"][0] for row in metrics.read(tmp_path / "elsewhere" / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 5
    assert_same_rows(tmp_path / "elsewhere", tmp_path / "one")
