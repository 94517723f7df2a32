"""Runs of several processes: they fail as one and go on; tests/experiments/vmoe/test_distributed.py has the rest."""

import signal
import sys
import time

import pytest

from experiments.cifar100_vit.suite.presets import DEMO
from experiments.core import checksums, distributed
from experiments.core.errors import UsageError
from tests.experiments.processes import begin, ended, environment, finish, free_port, wait_for_rows
from tests.experiments.support import rows_without_seconds, start

# Every process reads its rows of a batch, and has its part of a matrix.
FIELDS = DEMO | {
    "loss.name": "xent",
    "feed": "stream",
    "model.depth": 1,
    "model.mlp_dim": 512,  # times the width of 32: just large enough to be divided
    "eval_batch_size": 360,
    "steps": 20,
    "steps_per_dispatch": 1,
    "eval_every": 4,
    "checkpoint_every": 6,
    "optimizer.warmup_steps": 4,
}


def run(workdir, processes, devices, **fields):
    """The processes of a run, as many as given, with so many devices each."""
    everywhere = {"mesh.data": 1, "mesh.fsdp": processes * devices}
    config = "configs/cifar100_vit.py:small"
    fields = FIELDS | everywhere | fields
    return begin("experiments.cifar100_vit", config, workdir, fields, processes=processes, devices=devices)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of two processes with four devices each, without interruption."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    first, second = finish(run(workdir, 2, 4))
    assert "step 20/20" in first
    assert "step" not in second  # only the first process reports
    return workdir


def test_when_one_process_is_killed_the_other_fails_and_the_run_goes_on_from_what_is_intact(whole, tmp_path):
    processes = run(tmp_path / "killed", 2, 4)
    wait_for_rows(processes, tmp_path / "killed", 3)
    newest = tmp_path / "killed" / "checkpoints" / "12"
    while not (newest / checksums.NAME).exists():
        assert processes[0].poll() is None
        time.sleep(0.002)
    processes[1].kill()
    (status, _, err), (killed, _, _) = ended(processes, timeout=600)
    assert killed == -signal.SIGKILL
    assert status not in (0, -signal.SIGKILL)
    assert "Traceback" in err or "another task died" in err
    (newest / "state" / "_METADATA").write_bytes(b"{")
    first, second = finish(run(tmp_path / "killed", 2, 4))
    assert "the checkpoint of step 12 is damaged (state/_METADATA is not what was saved)" in first
    assert "resuming after step 6" in first
    assert "step" not in second
    assert rows_without_seconds(tmp_path / "killed") == rows_without_seconds(whole)


def test_mistakes_are_one_line_of_each_process(tmp_path):
    mistakes = ended(run(tmp_path / "run", 2, 4, **{"batch_size": 60}), timeout=600)
    for status, _, err in mistakes:
        assert status == 2
        assert err.startswith("error: config.batch_size=60")
        assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


ADDRESS, COUNT, INDEX = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({INDEX: "1"}, "JAX_PROCESS_ID without JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES: .* all of"),
        (
            {ADDRESS: "host:1", COUNT: "2", INDEX: ""},
            "JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES without JAX_PROCESS",
        ),
        (
            {ADDRESS: "host", COUNT: "2", INDEX: "0"},
            "JAX_COORDINATOR_ADDRESS=host is not allowed: it must be HOST:PORT",
        ),
        ({ADDRESS: "host:70000", COUNT: "2", INDEX: "0"}, "JAX_COORDINATOR_ADDRESS=host:70000 is not allowed"),
        ({ADDRESS: "host:1", COUNT: "0", INDEX: "0"}, "JAX_NUM_PROCESSES=0 .* a positive number"),
        ({ADDRESS: "host:1", COUNT: "2", INDEX: "2"}, "JAX_PROCESS_ID=2 .* a number below JAX_NUM_PROCESSES=2"),
    ],
)
def test_variables_that_make_no_sense_are_refused(monkeypatch, variables, message):
    for name in (ADDRESS, COUNT, INDEX):
        monkeypatch.setenv(name, variables.get(name, ""))
    with pytest.raises(UsageError, match=f"^{message}"):
        distributed.initialize()


@pytest.mark.parametrize("count", [1, 2])
def test_the_tasks_of_srun_find_each_other(count):
    code = (
        "import jax; from experiments.core import distributed; distributed.initialize();"
        "print(jax.distributed.is_initialized(), jax.process_index(), jax.process_count(), jax.device_count());"
        "print('of the first:', distributed.from_first(lambda: {'process': jax.process_index()}))\n"
        "def fail(): raise distributed.UsageError(f'of {jax.process_index()}')\n"
        "try: distributed.from_first(fail)\n"
        "except distributed.UsageError as error: print('error:', error)"
    )
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(count)}
    common = environment(devices=3) | slurm | {"JAX_COORDINATOR_PORT": str(free_port())}
    tasks = [{"SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)} for index in range(count)]
    outs = finish([start([sys.executable, "-c", code], env=common | task) for task in tasks])
    seen = [next(line for line in out.splitlines() if line.startswith(("True", "False"))) for out in outs]
    assert seen == [f"{count > 1} {index} {count} {3 * count}" for index in range(count)]
    assert all(out.endswith("of the first: {'process': 0}\nerror: of 0\n") for out in outs), outs
