"""How processes find each other, and their mistakes; signals and broken terminals, which are noted, and nothing more.

What several processes train is in test_two_processes.py.
"""

import errno
import io
import os
import signal
import sys

import jax
import pytest

from experiments.core.errors import UsageError
from experiments.core.training import guard
from tests.experiments.processes import ended, environment, finish, free_port
from tests.experiments.support import command, start

ADDRESS, COUNT, INDEX = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


@pytest.mark.parametrize(
    "variables",
    [
        {INDEX: "1"},
        {ADDRESS: "host:1", COUNT: "2", INDEX: ""},
        {ADDRESS: "host:1", COUNT: "two", INDEX: "0"},
        {ADDRESS: "host:1", COUNT: "2", INDEX: "2"},
    ],
)
def test_bad_process_variables_are_refused(monkeypatch, variables):
    for name in (ADDRESS, COUNT, INDEX):
        monkeypatch.setenv(name, variables.get(name, ""))
    (name, value), *_ = variables.items()
    refused = pytest.raises(UsageError, match=f"{name}={value}.* a run of several processes needs {ADDRESS}=HOST:PORT")
    with refused, guard.joined():
        pass


def variables_of_srun(index, count):
    """Of one of so many tasks."""
    common = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(count)}
    return common | {"SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)}


@pytest.mark.parametrize(
    "variables",
    [
        variables_of_srun(0, 1),
        variables_of_srun(0, 2) | {COUNT: "1"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    ],
)
def test_single_task_joins_no_other(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with guard.joined():
        assert not jax.distributed.is_initialized()
        assert guard.from_first(lambda: {"process": 0}) == {"process": 0}


@pytest.mark.parametrize(
    ("variables", "method"),
    [
        ({}, None),
        ({"JAX_PLATFORMS": "cpu"}, "not joined"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "ompi"),
    ],
)
def test_hosts_of_tpus_find_each_other(monkeypatch, variables, method):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(guard.glob, "glob", lambda pattern: [pattern])
    monkeypatch.setattr(guard.importlib.util, "find_spec", lambda name: name)
    called = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *arguments, **options: called.append(options))
    with guard.joined():
        pass
    assert [options["cluster_detection_method"] for options in called] == [method] * (method != "not joined")


def test_separate_srun_tasks_are_refused(tmp_path):
    common = environment(devices=1) | {"JAX_COORDINATOR_PORT": str(free_port())}
    runs = [command(tmp_path / str(index), f"--config.seeds=({index},)") for index in range(2)]
    started = [start(run, env=common | variables_of_srun(index, 2)) for index, run in enumerate(runs)]
    for index, (status, _, err) in enumerate(ended(started, timeout=600)):
        assert status == 2
        assert err.startswith("error: 2 processes have joined to be one run")
        assert err.endswith(": for a run of each, set JAX_NUM_PROCESSES=1\n")
        assert err.count("\n") == 1, err
        assert (f"--workdir={tmp_path}/1" in err) == (index == 1)
    assert not any(tmp_path.iterdir())


def test_the_tasks_of_srun_find_each_other():
    code = (
        "import jax; from experiments.core.training import guard; guard.joined().__enter__();"
        "print(jax.distributed.is_initialized(), jax.process_index(), jax.process_count(), jax.device_count());"
        "print('of the first:', guard.from_first(lambda: {'process': jax.process_index()}))\n"
        "def fail(): raise guard.UsageError(f'of {jax.process_index()}')\n"
        "try: guard.from_first(fail)\n"
        "except guard.UsageError as error: print('error:', error)"
    )
    common = environment(devices=3) | {"JAX_COORDINATOR_PORT": str(free_port())}
    tasks = [variables_of_srun(index, 2) for index in range(2)]
    outs = finish([start([sys.executable, "-c", code], env=common | task) for task in tasks])
    seen = [next(line for line in out.splitlines() if line.startswith(("True", "False"))) for out in outs]
    assert seen == [f"True {index} 2 6" for index in range(2)]
    assert all(out.endswith("of the first: {'process': 0}\nerror: of 0\n") for out in outs), outs


NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def unheeded(number, frame):
    raise AssertionError(f"{signal.Signals(number).name} was not noted")


@pytest.fixture
def handlers():
    """Of this process, none of them to ignore a signal, as nohup makes it; a test must leave them as they were."""
    previous = {number: signal.signal(number, unheeded) for number in NUMBERS}
    before = [signal.getsignal(number) for number in NUMBERS]
    yield before
    after = [signal.getsignal(number) for number in NUMBERS]
    for number, handler in previous.items():
        signal.signal(number, handler)
    assert after == before


def test_repeated_sighup_is_harmless(handlers):
    """Leaves a second SIGTERM to act as usual."""
    with guard.interruptible() as stop:
        assert stop.received is None
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) == handlers[0]
        signal.raise_signal(signal.SIGHUP)  # as a closed terminal and its shell send it
        assert stop.received == "SIGHUP"


def test_what_is_ignored_stays_so(handlers):
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with guard.interruptible() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop.received is None
    signal.signal(signal.SIGHUP, previous)


def test_broken_stdout_requests_a_stop(monkeypatch, handlers):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("sys.stdout", Gone())
    with guard.interruptible() as stop:
        stop.say("epoch 1")
        assert stop.received is not None
