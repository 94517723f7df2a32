"""Several processes as one run: they join each other before any of them asks for a device.

    JAX_COORDINATOR_ADDRESS   HOST:PORT at which the first process listens and the others find it
    JAX_NUM_PROCESSES         how many there are
    JAX_PROCESS_ID            which of them this is, from 0

All three or none are given. Without them JAX finds the processes of a TPU pod, of `srun` and of `mpirun` by itself
(then with one GPU each). With JAX_NUM_PROCESSES=1 a process stays alone wherever it is, as tasks of one `srun` must
that are runs of their own. JAX also reads JAX_NUM_CPU_DEVICES and JAX_LOCAL_DEVICE_IDS.
"""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.core.errors import UsageError

_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_ALONE = ("JAX_NUM_PROCESSES", "1")
_CLUSTERS = ("ompi", "slurm", "gketpu", "gcetpu")  # as JAX names them
# A process that has not been heard of for so long has ended. Threads of their own say so, however busy a process is.
_HEARTBEAT_SECONDS = 60


def initialize() -> None:
    """Joins the other processes where the environment tells of any; `UsageError` if its variables make no sense.

    JAX waits five minutes for them, and aborts if they have not come. If one ends later other than by returning, the
    others end with an error: soon where a connection breaks, else when it has not been heard of for a minute.
    """
    if os.environ.get(_ALONE[0]) == _ALONE[1]:
        return
    given = _given()
    cluster = None if given else _cluster()
    if not given and not cluster:
        return
    address, count, index = given or (None, None, None)
    joining = f"process {index} of {count} joins the others at {address}"
    print(joining if given else f"joining the others by {cluster}", flush=True)
    # JAX would only note SIGTERM, which is for `Interrupt` to do, and not before it can be acted on.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        address,
        count,
        index,
        cluster_detection_method=cluster or "deactivate",
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
    )


@contextlib.contextmanager
def leaving_promptly() -> Iterator[None]:
    """Ends this process soon if the run in it fails, and so all: JAX would have each wait at exit for the others."""
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


def _cluster() -> str | None:
    """JAX's name of the cluster that it finds by itself, if this process is one of several there."""
    # `jax.distributed.initialize` says neither beforehand; and of a process alone it would ask for a free port.
    from jax._src import clusters

    for kind in clusters.ClusterEnv._cluster_types:
        if kind.name in _CLUSTERS and kind.is_env_present():
            return kind.name if kind.get_process_count() > 1 else None
    return None
