"""Peak extra memory of one call, in arrays of the size of its input: as compiled, and as the system saw it.

``measure`` runs this module in a process of its own, in which nothing else has been done.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from scripts.bench.contestants import BOTH, MODES, draw, operators
from scripts.bench.sizes import Case

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 120  # that a process may take, which takes ten
_SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # a GPU, with the process that waits for this one


def measure(contestant: str, n: int) -> dict[str, Any]:
    """Memory of one of our operators on one row of ``n`` entries, measured in a fresh process for each mode.

    Returns:
      Per mode: ``compiled``, temporary and output memory as the compiler planned them, ``measured``, the growth of
      the process's (on a GPU, the device's) peak memory over what it held before the call, None where the system
      does not tell; both in arrays of the input's size. Or ``error``.
    """
    found: dict[str, Any] = {"contestant": contestant, "n": n}
    for mode in MODES:
        command = [sys.executable, "-m", "scripts.bench.memory", contestant, mode, str(n)]
        try:
            done = subprocess.run(
                command, cwd=_ROOT, env=os.environ | _SHARED, capture_output=True, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            found["error"] = f"{mode}: not done after {_SECONDS} s"
            continue
        if done.returncode == 0:
            found[mode] = json.loads(done.stdout.splitlines()[-1])
        else:
            found["error"] = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return found


def _measure_here(name: str, mode: str, n: int) -> dict[str, Any]:
    (contestant,) = (c for c in operators() if c.name == name)
    assert contestant.function is not None
    function = functools.partial(contestant.function, k=n // 10)
    inputs = draw(Case(1, n, n // 10), 0)
    x, weights = jax.block_until_ready((jnp.asarray(inputs.x), jnp.asarray(inputs.weights)))
    del inputs
    arguments: tuple[jax.Array, ...] = (x,)
    if mode == BOTH:
        arguments = (x, weights)
        compiled = jax.jit(jax.value_and_grad(lambda x, c: jnp.sum(function(x) * c))).lower(*arguments).compile()
    else:
        compiled = jax.jit(function).lower(*arguments).compile()
    plan = compiled.memory_analysis()
    planned = None
    if plan is not None:
        planned = (plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes) / x.nbytes
    before = _held()
    result = jax.block_until_ready(compiled(*arguments))
    after = _peak()
    del result
    return {"compiled": planned, "measured": None if before is None or after is None else (after - before) / x.nbytes}


def _held() -> int | None:
    """Bytes in use now. Resets the peak where that can be done; where not, a higher peak before hides this one."""
    statistics = jax.devices()[0].memory_stats()
    if statistics:
        return statistics.get("bytes_in_use")
    with contextlib.suppress(OSError):  # where that fails, the peak of compilation may count against the call
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int | None:
    statistics = jax.devices()[0].memory_stats()
    if statistics:
        return statistics.get("peak_bytes_in_use")
    return _status("VmHWM")


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":")), None)


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
