"""How near the operators come to reading and writing their entries once: ``python -m scripts.bench.traffic``.

Times forward and with the gradient, taking turns: a copy of the entries, ``softmax``, ``lax.top_k``, PyTorch's ``topk``
where it is installed for the same device, the algorithm of RTop-K (``scripts.bench.rtopk``: forward, and short rows),
and the operators. Calls are queued, and waited for together, so that what it
takes to start one shows only where it takes longer than the work itself. A speed is that of one read and one write of
the entries (float32), whatever was moved; it is held against that of the copy. Ten minutes at most. Writes
``<results>/traffic-<hardware>.json``.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epy

from scripts.bench import record
from scripts.bench.progress import Progress
from scripts.bench.sizes import Case
from scripts.bench.timing import summarise

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    from jax import lax

    import ops
    from scripts.bench import rtopk

_MODULE = "scripts.bench.traffic"

COPY, TOP_K, RTOPK = "copy", "lax.top_k", "RTop-K's algorithm"
FORWARD, GRADIENT = "forward", "gradient"
CASES = (
    Case(128, 1000, 100),
    Case(12800, 400, 28),
    Case(4096, 8192, 819),
    Case(1, 25_088, 2508),
    Case(1, 10**6, 10**5),
    Case(1, 10**7, 10**6),
)
SMALL = (Case(16, 100, 10),)

# Rows of so many entries are to be within this many times one read and one write.
SHORT, LIMIT = 8192, 2.0

Queue = Callable[[int], None]  # so many calls, one after the other, until the last is done


def functions(k: int) -> dict[str, Callable[[jax.Array], jax.Array]]:
    """What is timed, of entries (rows, n)."""
    found: dict[str, Callable[[jax.Array], jax.Array]] = {
        COPY: jnp.copy,
        "softmax": functools.partial(jax.nn.softmax, axis=-1),
        TOP_K: lambda x: lax.top_k(x, k)[0],
        RTOPK: functools.partial(rtopk.mask, k=k),
        "hard_topk_mask": lambda x: ops.hard_topk_mask(x, k),
    }
    for label, p in (("2", 2.0), ("4/3", 4 / 3)):
        for lam in (1.0, 0.1, 0.01):
            found[f"topk_mask p={label} lam={lam:g}"] = functools.partial(ops.topk_mask, k=k, p=p, lam=lam)
        found[f"topk_mag p={label} lam=0.1"] = functools.partial(ops.topk_mag, k=k, p=p, lam=0.1)
    return found


def queues(case: Case) -> tuple[dict[tuple[str, str], Queue], dict[str, dict[str, int | None]]]:
    """Everything that can be timed at `case`, compiled; and the bytes that each program takes beside its arguments."""
    rng = np.random.default_rng(list(case))
    x, towards = (jnp.asarray(rng.standard_normal((case.batch, case.n), np.float32)) for _ in range(2))
    found: dict[tuple[str, str], Queue] = {}
    memory: dict[str, dict[str, int | None]] = {}
    for name, function in functions(case.k).items():

        def weighed(x: jax.Array, towards: jax.Array, function: Any = function) -> jax.Array:
            y = function(x)
            return jnp.sum(y * towards[:, : y.shape[1]])

        ways = {FORWARD: lambda x, towards, function=function: function(x), GRADIENT: jax.grad(weighed)}
        if name == RTOPK:
            ways = {FORWARD: ways[FORWARD]} if case.n <= rtopk.LONGEST else {}
        for mode, way in ways.items():
            compiled = jax.jit(way, keep_unused=True).lower(x, towards).compile()
            plan = compiled.memory_analysis()
            memory.setdefault(name, {})[mode] = None if plan is None else plan.temp_size_in_bytes
            found[name, mode] = functools.partial(_in_jax, compiled, x, towards)
            found[name, mode](1)
    found |= _torch_topk(case, np.asarray(x))
    return found, memory


def _in_jax(compiled: Callable[..., Any], x: jax.Array, towards: jax.Array, count: int) -> None:
    result = None
    for _ in range(count):
        result = compiled(x, towards)
    jax.block_until_ready(result)


def _torch_topk(case: Case, x: np.ndarray) -> dict[tuple[str, str], Queue]:
    try:
        import torch
    except ImportError:
        return {}
    on_gpu = jax.default_backend() == "gpu"
    if on_gpu and not torch.cuda.is_available():
        return {}
    entries = torch.tensor(x, device="cuda" if on_gpu else "cpu")

    def queue(count: int) -> None:
        for _ in range(count):
            torch.topk(entries, case.k, dim=-1)
        if on_gpu:
            torch.cuda.synchronize()

    queue(1)
    return {("torch.topk", FORWARD): queue}


def time_queues(found: Mapping[tuple[str, str], Queue], seconds: float) -> dict[tuple[str, str], Any]:
    """Quartiles of the time of a call, from batches of calls of about 5 ms that take turns for so long in all."""
    counts = {}
    for key, queue in found.items():
        queue(2)
        start = time.perf_counter()
        queue(4)
        counts[key] = max(1, round(0.005 / ((time.perf_counter() - start) / 4)))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in found}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(next(iter(times.values()))) < 3:
        for key, queue in found.items():
            start = time.perf_counter()
            queue(counts[key])
            times[key].append((time.perf_counter() - start) / counts[key])
    return {key: summarise(values) for key, values in times.items()}


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """All rows of one case: quartiles, bytes a second, and ratios to the copy and to `lax.top_k` in the same mode."""
    found, memory = queues(case)
    times = time_queues(found, seconds)
    copied, largest = (
        times[COPY, FORWARD].median_ms,
        {mode: times[TOP_K, mode].median_ms for mode in (FORWARD, GRADIENT)},
    )
    rows = []
    for (name, mode), quartiles in times.items():
        once = 2 * 4 * case.batch * case.n  # bytes of one read and one write
        rows.append(
            {"name": name, "mode": mode, **quartiles._asdict()}
            | {
                "gb_a_second": once / quartiles.median_ms / 1e6,
                "over_copy": quartiles.median_ms / copied,
                "over_top_k": quartiles.median_ms / largest[mode],
                "temporary_bytes": memory.get(name, {}).get(mode),
            }
        )
    return {"batch": case.batch, "n": case.n, "k": case.k, "results": rows}


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--small", action="store_true", help="one tiny shape, to see that everything works")
    parser.add_argument("--seconds", type=float, default=40.0, help="of timed calls, of each shape")
    options = record.parse(parser, arguments, harmless=("small",))
    environment = record.begin(_MODULE, arguments, options.results)

    cases = []
    chosen = SMALL if options.small else CASES
    progress = Progress([options.seconds + 30.0] * len(chosen), lambda line: print(line, flush=True))
    for case in chosen:
        progress.next(str(case))
        cases.append(measure(case, options.seconds))
        print(f"{'':28} {'':9} ms [quartiles]            GB/s  over copy  over lax.top_k")
        for row in cases[-1]["results"]:
            spread = f"[{row['lower_quartile_ms']:.4f}, {row['upper_quartile_ms']:.4f}]"
            numbers = f"{row['gb_a_second']:6.0f} {row['over_copy']:9.2f} {row['over_top_k']:10.2f}"
            print(f"{row['name']:28} {row['mode']:9} {row['median_ms']:8.4f} {spread:20} {numbers}")
    held = targets(cases)
    document = {"settings": {"small": options.small, "seconds": options.seconds}, "cases": cases, "targets": held}
    path = record.write(options.results, "traffic-{hardware}" + "-small" * options.small, environment, document)
    for target in held:
        print(f"{target['status']}  {target['measured']:.2f} (limit {target['limit']:g})  {target['target']}")
    print(f"results are in {path}")
    return 0


def targets(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Masks of short rows against one read and one write, and against RTop-K's algorithm, where there are such rows."""
    found = []
    for case in cases:
        times = {row["name"]: row for row in case["results"] if row["mode"] == FORWARD}
        masks = [row for name, row in times.items() if name.startswith("topk_mask p=2") and case["n"] <= SHORT]
        for name, limit in ((COPY, LIMIT), (RTOPK, 1.0)):
            for row in masks if name in times else ():
                shape, over = Case(case["batch"], case["n"], case["k"]), row["median_ms"] / times[name]["median_ms"]
                found.append(
                    {
                        "target": f"{shape} {row['name']} over {name}",
                        "limit": limit,
                        "measured": over,
                        "status": "PASS" if over <= limit else "MISS",
                    }
                )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
