"""How near the operators come to reading and writing their entries once: ``python -m scripts.bench.traffic``.

Times forward and with the gradient, taking turns: a copy of the entries, ``softmax``, ``lax.top_k``, PyTorch's ``topk``
where it is installed for the same device, the algorithm of RTop-K (``scripts.bench.rtopk``: forward, and short rows),
and the operators. Who does not agree with the same operator by another way is not timed: relaxed ones with the loop of
passes, RTop-K's algorithm with our hard mask. Calls are queued, and waited for together, so that what it takes to begin
one shows only where that takes longer than its work. A call with hardly any work tells how long that is: on an
accelerator nothing is concluded where the copy takes less than twice as long. A speed is that of one read and one write
of the entries (float32), whatever was moved; it is held against that of the copy. Five minutes on a GPU. Writes
the section ``traffic`` of ``<results>/<hardware>.json`` after each shape: if the command was stopped, the same one goes
on.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ops
from experiments.core import console
from scripts.bench import record, rtopk
from scripts.bench.failure import LostDeviceError, caught
from scripts.bench.progress import Progress
from scripts.bench.record import Attempt
from scripts.bench.sizes import Case
from scripts.bench.timing import Call, Summary, summarise, together

_MODULE = "scripts.bench.traffic"

COPY, TOP_K, RTOPK, HARD, TORCH = "copy", "lax.top_k", "RTop-K's algorithm", "hard_topk_mask", "torch.topk"
FLOOR = "one entry, the least a call takes"
OURS = ("topk_", "hard_topk_")
MODES = FORWARD, GRADIENT = "forward", "gradient"
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
# Times the least that a call takes: a copy that takes less shows how long it takes to begin one.
LAUNCH_BOUND = 2.0
# Of an entry, and of the norm of a gradient: an entry within rounding of 0 or 1 may have another derivative.
TOLERANCE = {FORWARD: 2e-4, GRADIENT: 5e-3}

Queue = Callable[[int], None]  # so many calls, one after the other, until the last is done
Key = tuple[str, str]  # name and mode
Row = dict[str, Any]
Operator: TypeAlias = "Callable[[jax.Array], jax.Array]"


def functions(k: int, solver: Any = "threshold") -> dict[str, Operator]:
    """What is timed, of entries (rows, n)."""
    found: dict[str, Operator] = {
        FLOOR: lambda x: x[:1, :1],
        COPY: jnp.copy,
        "softmax": functools.partial(jax.nn.softmax, axis=-1),
        TOP_K: lambda x: lax.top_k(x, k)[0],
        RTOPK: functools.partial(rtopk.mask, k=k),
        HARD: lambda x: ops.hard_topk_mask(x, k),
    }
    for label, p in (("2", 2.0), ("4/3", 4 / 3)):
        for lam in (1.0, 0.1, 0.01):
            mask = functools.partial(ops.topk_mask, k=k, p=p, lam=lam, solver=solver)
            found[f"topk_mask p={label} lam={lam:g}"] = mask
        found[f"topk_mag p={label} lam=0.1"] = functools.partial(ops.topk_mag, k=k, p=p, lam=0.1, solver=solver)
    return found


def references(k: int) -> dict[str, Operator]:
    """What some of `functions` should give, by another way."""
    by_loop = functions(k, solver="loop")
    return {RTOPK: by_loop[HARD]} | {name: function for name, function in by_loop.items() if name.startswith("topk_")}


def queues(case: Case, lost: Mapping[str, str], attempt: Attempt) -> tuple[dict[Key, Queue], list[Row]]:
    """Compiles and compares everything at `case` but for those that are `lost`, which have failed before.

    Each within its `attempt`.

    Returns:
      What can be timed, and a row for everything: its ``status`` is ``timed``, or ``wrong`` or ``failed``, which have a
      ``reason``; and the bytes that its program takes beside its arguments.
    """
    rng = np.random.default_rng(list(case))
    x, towards = (jnp.asarray(rng.standard_normal((case.batch, case.n), np.float32)) for _ in range(2))
    found: dict[Key, Queue] = {}
    rows: list[Row] = []
    others = references(case.k)

    def add(name: str, mode: str, prepare: Callable[[Row], Queue | None]) -> None:
        row: Row = {"name": name, "mode": mode, "status": "timed", "reason": None}
        failed = {key: reason for key, reason in lost.items() if key == name}
        queue = None
        if not failed:
            with attempt(name), caught(failed, name):
                queue = prepare(row)
        if failed:
            row.update(status="failed", reason=failed[name])
        elif queue is None:
            return
        elif row["status"] == "timed":
            found[name, mode] = queue
        rows.append(row)

    for name, function in functions(case.k).items():
        if name == RTOPK and case.n > rtopk.LONGEST:
            continue
        modes = (FORWARD,) if name in (FLOOR, RTOPK) else MODES
        for mode in modes:

            def prepare(row: Row, function: Operator = function, other: Operator | None = others.get(name)) -> Queue:
                compiled = jax.jit(_way(function, row["mode"]), keep_unused=True).lower(x, towards).compile()
                plan = compiled.memory_analysis()
                row["temporary_bytes"] = None if plan is None else plan.temp_size_in_bytes
                result = jax.block_until_ready(compiled(x, towards))
                if other is not None:
                    row |= _compared(row["mode"], result, jax.jit(_way(other, row["mode"]))(x, towards))
                return Call(functools.partial(compiled, x, towards), jax.block_until_ready).queue

            add(name, mode, prepare)
    add(TORCH, FORWARD, lambda row: _torch_topk(case, np.asarray(x)))
    return found, rows


def _way(function: Operator, mode: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def weighed(x: jax.Array, towards: jax.Array) -> jax.Array:
        y = function(x)
        return jnp.sum(y * towards[:, : y.shape[1]])

    return jax.grad(weighed) if mode == GRADIENT else lambda x, towards: function(x)


def _compared(mode: str, result: jax.Array, truth: jax.Array) -> Row:
    """What the row of a result says of it."""
    if mode == FORWARD:
        name, error = "max_abs_error", float(jnp.max(jnp.abs(result - truth)))
    else:
        size = float(jnp.linalg.norm(truth)) or 1.0
        name, error = "relative_gradient_error", float(jnp.linalg.norm(result - truth)) / size
    found: Row = {name: error if np.isfinite(error) else None}
    if error <= TOLERANCE[mode]:
        return found
    return found | {"status": "wrong", "reason": f"off by {error:.2g} from another way, tolerance {TOLERANCE[mode]:g}"}


def _torch_topk(case: Case, x: np.ndarray) -> Queue | None:
    try:
        import torch
    except (ImportError, OSError):  # it is not there, or the libraries that it loads are not
        return None
    on_gpu = jax.default_backend() == "gpu"
    if on_gpu and not torch.cuda.is_available():
        return None
    entries = torch.tensor(x, device="cuda" if on_gpu else "cpu")

    def wait(result: Any) -> None:
        if on_gpu:
            torch.cuda.synchronize()

    queue = Call(lambda: torch.topk(entries, case.k, dim=-1), wait).queue
    queue(1)
    return queue


def time_queues(
    found: Mapping[Key, Queue], seconds: float, failed: MutableMapping[Key, str] | None = None
) -> dict[Key, Summary]:
    """Quartiles of the time of a call, from batches of calls of about 5 ms that take turns for so long in all.

    Args:
      found: what is timed.
      seconds: of all together.
      failed: gets the reason of what raises, which is left out from then on.
    """
    failed = {} if failed is None else failed
    counts: dict[Key, int] = {}
    for key, queue in found.items():
        with caught(failed, key):
            counts[key] = together(queue)
    times: dict[Key, list[float]] = {key: [] for key in counts}
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end or rounds < 3:
        rounds += 1
        for key in [key for key in counts if key not in failed]:
            with caught(failed, key):
                start = time.perf_counter()
                found[key](counts[key])
                times[key].append((time.perf_counter() - start) / counts[key])
    return {key: summarise(values) for key, values in times.items() if key not in failed}


def measure(
    case: Case, seconds: float, lost: Mapping[str, str] | None = None, attempt: Attempt = contextlib.nullcontext
) -> dict[str, Any]:
    """All rows of one case: quartiles, bytes a second, and ratios to the copy and to `lax.top_k` in the same mode."""
    found, rows = queues(case, lost or {}, attempt)
    failed: dict[Key, str] = {}
    times = time_queues(found, seconds, failed)
    copied = times.get((COPY, FORWARD))
    over_floor = _ratio(copied, times.get((FLOOR, FORWARD)))
    waits = jax.default_backend() != "cpu" and over_floor is not None and over_floor < LAUNCH_BOUND
    for row in rows:
        key = row["name"], row["mode"]
        if key in failed:
            row.update(status="failed", reason=failed[key])
        if key not in times:
            continue
        largest = times.get((TOP_K, row["mode"]))
        once = 2 * 4 * case.batch * case.n  # bytes of one read and one write
        row.update(
            times[key]._asdict(),
            gb_a_second=None if row["name"] == FLOOR else once / times[key].median_ms / 1e6,
            over_copy=_ratio(times[key], copied),
            over_top_k=_ratio(times[key], largest),
            launch_bound=waits,
        )
    return {"batch": case.batch, "n": case.n, "k": case.k, "results": rows}


def _ratio(time: Summary | None, other: Summary | None) -> float | None:
    return None if time is None or other is None else time.median_ms / other.median_ms


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--small", action="store_true", help="one tiny shape, to see that everything works")
    parser.add_argument("--seconds", type=float, default=40.0, help="of timed calls, of each shape")
    options = record.parse(parser, arguments, harmless=("small",))
    environment = record.begin(_MODULE, arguments, options.results)

    name = "traffic" + "-small" * options.small
    settings = {"small": options.small, "seconds": options.seconds}
    kept = record.keep(options.results, name, environment, {"settings": settings, "cases": []})
    chosen = kept.missing(SMALL if options.small else CASES)
    progress = Progress([options.seconds + 40.0] * len(chosen), lambda line: print(line, flush=True))
    try:
        for case in chosen:
            progress.next(str(case))
            kept.case(case, functools.partial(measure, case, options.seconds))
            for line in lines(kept.document["cases"][-1]):
                print(line, flush=True)
    except LostDeviceError as error:
        print(f"error: {error}: the same command goes on without it", file=sys.stderr)
        return 1
    held = targets(kept.document["cases"])
    path = record.write(options.results, name, environment, kept.document | {"targets": held})
    for target in held:
        print(f"{target['status']}  {target['measured']:.2f} (limit {target['limit']:g})  {target['target']}")
    print(f"results are in {path}")
    ours = [row for case in kept.document["cases"] for row in case["results"] if row["name"].startswith(OURS)]
    return int(any(row["status"] != "timed" for row in ours))


def lines(case: Mapping[str, Any]) -> Iterator[str]:
    """The rows of a case as text."""
    yield f"{'':34} {'':9} ms [quartiles]            GB/s  over copy  over lax.top_k"
    for row in case["results"]:
        if row["status"] != "timed":
            yield f"{row['name']:34} {row['mode']:9} {row['status']}: {row['reason']}"
            continue
        spread = f"[{row['lower_quartile_ms']:.4f}, {row['upper_quartile_ms']:.4f}]"
        ratios = ["-" if ratio is None else f"{ratio:.2f}" for ratio in (row["over_copy"], row["over_top_k"])]
        speed = "-" if row["gb_a_second"] is None else f"{row['gb_a_second']:.0f}"
        numbers = f"{speed:>6} {ratios[0]:>9} {ratios[1]:>10}"
        yield f"{row['name']:34} {row['mode']:9} {row['median_ms']:8.4f} {spread:20} {numbers}"


def targets(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Masks of short rows against one read and one write, and against RTop-K's algorithm, where there are such rows."""
    found = []
    for case in cases:
        times = {row["name"]: row for row in case["results"] if (row["mode"], row["status"]) == (FORWARD, "timed")}
        masks = [row for name, row in times.items() if name.startswith("topk_mask p=2") and case["n"] <= SHORT]
        for name, limit in ((COPY, LIMIT), (RTOPK, 1.0)):
            for row in masks if name in times else ():
                shape, over = Case(case["batch"], case["n"], case["k"]), row["median_ms"] / times[name]["median_ms"]
                held = "PASS" if over <= limit else "MISS"
                found.append(
                    {
                        "target": f"{shape} {row['name']} over {name}",
                        "limit": limit,
                        "measured": over,
                        "status": "launch-bound" if row["launch_bound"] else held,
                    }
                )
    return found


if __name__ == "__main__":
    console.run(main)
