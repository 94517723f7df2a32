"""A run of two processes, which stop together and go on as one device would have done alone; it is started here, too.

python -m tests.experiments.core.training.test_two_processes WORKDIR
"""

import dataclasses
import re
import signal
import sys
import time

import pytest

from experiments.core.record import metrics
from experiments.core.training import guard, train
from experiments.core.training.experiment import Recipe
from tests.experiments.core.training.test_probe import build_probed
from tests.experiments.processes import environment, finish, free_port, wait_for_rows
from tests.experiments.support import assert_same_rows, start
from tests.experiments.toy import STREAM, load_streams, toy_config, watched

FIELDS = STREAM | {"checkpoint_every": 8}
MESH = {"data": 1, "fsdp": 2, "expert": 2}


def load_slowly(config):
    """The toy's streams, a batch every tenth of a second: time enough for a signal from outside."""
    data = load_streams(config)
    return dataclasses.replace(data, train_stream=watched(data.train_stream, lambda step: time.sleep(0.1)))


def two_processes(workdir):
    """The processes of a run, with two devices each."""
    common = environment(devices=2) | {"JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    command = [sys.executable, "-m", "tests.experiments.core.training.test_two_processes", str(workdir)]
    return [start(command, env=common | {"JAX_PROCESS_ID": str(index)}) for index in range(2)]


def run(workdir, load=load_streams, **fields):
    train.run(Recipe("toy", lambda config: None, build_probed, load), toy_config(**FIELDS, **fields), workdir)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The workdir of a run on one device."""
    run(workdir := tmp_path_factory.mktemp("alone"))
    return workdir


def test_two_processes_resume_on_one_device(alone, tmp_path):
    workdir = tmp_path / "run"
    both = two_processes(workdir)
    wait_for_rows(both, workdir, 3)  # to step 8
    both[1].send_signal(signal.SIGTERM)
    first, second = finish(both)
    assert "step" not in second  # only the first process reports
    (last,) = re.findall(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert 8 <= int(last) < 20
    assert not (workdir / "summary.json").exists()
    saved = workdir / "checkpoints" / last / "state"
    assert {path.name for path in saved.glob("ocdbt.process_*")} == {"ocdbt.process_0", "ocdbt.process_1"}
    run(workdir)
    losses = [row["train_loss"][0] for row in metrics.read(workdir / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 5
    assert_same_rows(workdir, alone)


if __name__ == "__main__":
    with guard.joined():
        run(sys.argv[1], load_slowly, mesh=MESH)
