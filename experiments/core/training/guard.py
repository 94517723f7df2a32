"""Guards a run: processes that are one run, signals that stop it after a checkpoint, and the memory of devices.

Several processes are `joined` before any of them asks for a device:

    JAX_COORDINATOR_ADDRESS   HOST:PORT at which the first process listens and the others find it
    JAX_NUM_PROCESSES         how many there are
    JAX_PROCESS_ID            which of them this is, from 0

All three or none are given. Without them JAX finds the processes of a TPU pod, of `srun` and of `mpirun` by itself
(then with one GPU each). With JAX_NUM_PROCESSES=1 a process stays alone wherever it is, as tasks of one `srun` must
that are runs of their own. JAX also reads JAX_NUM_CPU_DEVICES and JAX_LOCAL_DEVICE_IDS.
"""

import contextlib
import glob
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.experimental import multihost_utils

from experiments.core.errors import UsageError, printable

_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_ALONE = ("JAX_NUM_PROCESSES", "1")
# The launchers that JAX knows, as it names them: a variable that each sets, and the one with the number of processes.
_LAUNCHERS = {
    "ompi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "slurm": ("SLURM_STEP_NODELIST", "SLURM_NTASKS"),
}
# A process that has not been heard of for so long has ended. Threads of their own say so, however busy a process is.
_HEARTBEAT_SECONDS = 60
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Joins the other processes where the environment tells of any; `UsageError` if its variables make no sense.

    JAX waits five minutes for them, and aborts if they have not come. If one ends later other than by returning, the
    others end with an error: soon where a connection breaks, else when it has not been heard of for a minute. If the
    run in this process fails, it ends soon, and so all: JAX would have each wait at exit for the others.
    """
    _join()
    try:
        yield
    except BaseException:
        if jax.distributed.is_initialized():
            timer = threading.Timer(5.0, _leave)  # enough for all to report one mistake
            timer.daemon = True
            timer.start()
        raise


def is_first() -> bool:
    """Returns whether this process is the one that writes."""
    return jax.process_index() == 0


def from_first(call: Callable[[], Any]) -> Any:
    """Returns in all processes what `call` returns in the first one, as JSON has it, or raises its `UsageError`."""
    if jax.process_count() == 1:
        return call()
    answer: dict[str, Any] = {}
    if is_first():
        try:
            answer = {"value": call()}
        except UsageError as error:
            answer = {"error": str(error)}
    text = np.frombuffer(json.dumps(answer).encode(), np.uint8)
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    text = multihost_utils.broadcast_one_to_all(np.resize(text, length))
    answer = json.loads(np.asarray(text, np.uint8).tobytes())
    if "error" in answer:
        raise UsageError(answer["error"])
    return answer["value"]


def require_same(asked: list[str]) -> None:
    """Checks that all were asked for one run, in these lines: JAX may have joined separate runs.

    Raises `UsageError` in all of them if some were asked for another than the first.
    """
    if jax.process_count() == 1:
        return
    first = from_first(lambda: asked)
    same = np.asarray(multihost_utils.process_allgather(np.asarray(asked == first)))
    if others := np.flatnonzero(~same).tolist():
        own = next((f" ({line}, not {other})" for line, other in zip(asked, first, strict=False) if line != other), "")
        raise UsageError(
            f"{len(same)} processes have joined to be one run, but other things were asked of process "
            f"{', '.join(map(str, others))} than of process 0{own}: for a run of each, set {'='.join(_ALONE)}"
        )


class Stop:
    """What has asked a run to stop, such as SIGTERM, and where its lines are printed: see `interruptible`."""

    def __init__(self) -> None:
        self.received: str | None = None

    def asked(self, *, together: bool) -> bool:
        """Returns whether to stop after a step.

        Several processes stop after the same one, on which they agree by a message each: only where it is after a row
        or a checkpoint, and all are `together`.
        """
        if jax.process_count() == 1:
            return self.received is not None
        return together and bool(np.any(multihost_utils.process_allgather(np.asarray(self.received is not None))))

    def say(self, line: str) -> None:
        """Prints a line in the first process; an output that takes none, as a closed terminal, is a reason to stop."""
        if not is_first():
            return
        try:
            print(printable(line), flush=True)
        except OSError:
            self.received = self.received or "a closed output"
            # All that is still to be printed, some of it when Python ends, goes nowhere.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())


@contextlib.contextmanager
def interruptible() -> Iterator[Stop]:
    """Only notes the first SIGTERM, SIGINT or SIGHUP; a second SIGTERM or SIGINT acts as usual.

    orbax and JAX leave these signals alone (of several processes, `joined` sees to it), so that without this a
    preempted run would lose what it did since the last checkpoint. Ignored signals, as SIGHUP by nohup, stay so.
    SIGHUP comes twice when a terminal is closed, from it and from its shell: further ones change nothing.
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        stop.received = stop.received or signal.Signals(number).name
        restore(other for other in previous if other != signal.SIGHUP)

    def restore(numbers: Any) -> None:
        for number in numbers:
            signal.signal(number, previous[number])

    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in heeded}
    for number in heeded:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore(previous)


@contextlib.contextmanager
def enough_memory(config: ml_collections.ConfigDict) -> Iterator[None]:
    """Says in a `UsageError` what helps where a device lacks the memory for a run."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        parts = config.get("accumulate") or 1
        examples = f"{config.batch_size // parts} examples at once"
        allowed = f"more, such as {2 * parts}: a device lacks the memory for {examples}"
        raise UsageError(f"config.accumulate={parts} is not allowed: it must be {allowed}") from error


def _join() -> None:
    if os.environ.get(_ALONE[0]) == _ALONE[1]:
        return
    given, launched = _given(), _launched()
    if given:
        print(f"process {given[2]} of {given[1]} joins the others at {given[0]}", flush=True)
    elif launched and launched[1] > 1:
        print(f"joining the others by {launched[0]}", flush=True)
    elif launched or not _has_tpus():
        return
    # JAX would only note SIGTERM, which is for `interruptible` to do, and not before it can be acted on.
    jax.config.update("jax_enable_preemption_service", False)
    address, count, index = given or (None, None, None)
    jax.distributed.initialize(
        address,
        count,
        index,
        cluster_detection_method="deactivate" if given else launched[0] if launched else None,
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
    )


def _launched() -> tuple[str, int] | None:
    """JAX's name of what has launched this process, and how many it has launched; None of neither MPI nor SLURM."""
    for name, (mark, count) in _LAUNCHERS.items():
        if {mark, count} <= os.environ.keys():
            return name, int(os.environ[count])
    return None


def _has_tpus() -> bool:
    """Returns whether this is a host of TPUs that may be used: JAX knows of the others."""
    usable = "tpu" in (os.environ.get("JAX_PLATFORMS") or "tpu") and importlib.util.find_spec("libtpu") is not None
    return usable and any(glob.glob("/dev/accel*") + glob.glob("/dev/vfio/[0-9]*"))


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _given() -> tuple[str, int, int] | None:
    """Address, number of processes and index of this one, as the variables have them."""
    values = {name: value for name in _VARIABLES if (value := os.environ.get(name))}
    if not values:
        return None
    try:
        address, count, index = values[_VARIABLES[0]], int(values[_VARIABLES[1]]), int(values[_VARIABLES[2]])
        if not 0 <= index < count:  # the others would wait for it for minutes
            raise ValueError
        return address, count, index
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{', '.join(f'{name}={value}' for name, value in values.items())}: a run of several processes needs "
            f"{_VARIABLES[0]}=HOST:PORT and two numbers, {_VARIABLES[1]} and below it {_VARIABLES[2]}; "
            "any other none of them"
        ) from error
