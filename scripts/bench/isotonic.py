"""What each way to the relaxed top-k mask costs, and how exact it is: ``python -m scripts.bench.isotonic``.

Times the mask of one long row against its length, from scores to mask: by isotonic optimisation with PAV and with
Dykstra's algorithm (which both need the scores sorted, and their order undone), and by the scalar equation, beside what
JAX offers to select and to sort. The errors are those of the very outputs that are timed, against NumPy in float64.
Figure 4 of the paper is drawn from it. Writes ``<results>/isotonic-<hardware>.json``. About two minutes on two cores.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from etils import epy

from experiments.core import console
from scripts.bench import record
from scripts.bench.sizes import Case
from scripts.bench.timing import Budget, interleave

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    from jax import lax

    import ops
    from ops import isotonic, topk
    from scripts.bench import contestants, oracle

_MODULE = "scripts.bench.isotonic"

SIZES = [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]

Operator: TypeAlias = "Callable[[jax.Array, int, float], jax.Array]"


@dataclasses.dataclass(frozen=True)
class Way:
    """A function of a row, ``k`` and ``lam``.

    Attributes:
      operator: what is compiled and timed.
      largest: size above which it is left out.
      mask: whether it returns the relaxed mask.
    """

    operator: Operator
    largest: int = 10**6
    mask: bool = True


def _by(solver: Callable[[], topk.Solver]) -> Operator:
    return lambda x, k, lam: ops.topk_mask(x, k, lam=lam, solver=solver())


WAYS = {
    "PAV": Way(_by(lambda: isotonic.PAV()), 10**5),
    # With a tolerance of 0 all iterations are made.
    "Dykstra, 100 iterations": Way(_by(lambda: isotonic.Dykstra(max_iter=100, tol=0.0)), 10**5),
    "Dykstra, 10 iterations": Way(_by(lambda: isotonic.Dykstra(max_iter=10, tol=0.0)), 10**5),
    "scalar equation": Way(_by(lambda: "threshold")),
    "lax.top_k": Way(lambda x, k, lam: lax.top_k(x, k)[0], mask=False),
    "jnp.sort": Way(lambda x, k, lam: jnp.sort(x), mask=False),
}


def measure(
    sizes: Sequence[int], lams: Sequence[float], budget: Budget, seed: int = 0, say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Times and errors of every way at every size, for ``k = n / 10`` of standard normal float32.

    Args:
      sizes: of the rows.
      lams: strengths; the first is timed, at all of them the error is measured.
      budget: of the timed calls at one size.
      seed: of the scores.
      say: told of every stage.

    Returns:
      One record for each way and size: quartiles of the time, and by ``lam`` the largest error of an entry.
    """
    rows = []
    for n in sizes:
        begun = time.monotonic()
        inputs = contestants.draw(Case(1, n, n // 10), seed)
        x, k = jnp.asarray(inputs.x), inputs.case.k
        truth = {
            lam: oracle.expected(oracle.Reference("mask", 2.0, lam), inputs.x, k, inputs.weights).output for lam in lams
        }
        calls: dict[str, Callable[[], Any]] = {}
        errors: dict[str, dict[str, float]] = {}
        for name, way in WAYS.items():
            if n > way.largest:
                continue
            # A `lam` that is known to be positive spares the operator the hard mask.
            compiled = jax.jit(way.operator, static_argnums=(1, 2))
            for lam in lams if way.mask else ():
                error = np.abs(np.asarray(compiled(x, k, lam), np.float64) - truth[lam])
                errors.setdefault(name, {})[f"{lam:g}"] = float(np.max(error))
            calls[name] = functools.partial(_finished, compiled, x, k, lams[0])
            calls[name]()
        times = interleave(calls, budget)
        rows += [
            {"way": name, "n": n, "k": k, **found._asdict(), "max_abs_error": errors.get(name)}
            for name, found in times.items()
        ]
        say(f"n = {n}: {time.monotonic() - begun:.0f} s")
    return rows


def _finished(compiled: Operator, *arguments: Any) -> None:
    compiled(*arguments).block_until_ready()


def table(rows: Sequence[dict[str, Any]], sizes: Sequence[int] = (100, 1000, 10_000, 100_000)) -> list[str]:
    """Lines of Markdown: median milliseconds at ``sizes``, and the largest error at any size up to the last of them."""
    lines = [
        f"| | {' | '.join(f'n = {n:,}' for n in sizes)} | largest error |",
        "| --- |" + " ---: |" * (len(sizes) + 1),
    ]
    for way in WAYS:
        measured = {row["n"]: row for row in rows if row["way"] == way and row["n"] <= sizes[-1]}
        medians = " | ".join(f"{measured[n]['median_ms']:.2g}" if n in measured else "-" for n in sizes)
        errors = [error for row in measured.values() for error in (row["max_abs_error"] or {}).values()]
        lines.append(f"| {way} | {medians} | {f'{max(errors):.0e}' if errors else '-'} |")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the rows, >= 10")
    parser.add_argument("--lams", type=float, nargs="+", default=[0.1, 1.0], help="strengths; the first is timed")
    parser.add_argument("--seconds", type=float, default=8.0, help="of timed calls, for each size")
    options = record.parse(parser, arguments)
    if min(options.sizes) < 10:
        parser.error(f"--sizes: must be at least 10, got {min(options.sizes)}")
    environment = record.begin(_MODULE, arguments, options.results)

    settings = {"sizes": options.sizes, "lams": options.lams, "seconds": options.seconds, "p": 2.0, "seed": 0}
    before = record.load_average()
    budget = Budget(options.seconds, fewest=5, most=400)
    rows = measure(options.sizes, options.lams, budget, settings["seed"], lambda line: print(line, flush=True))
    document = {
        "settings": settings,
        "load_average": {"before": before, "after": record.load_average()},
        "rows": rows,
    }
    path = record.write(options.results, "isotonic-{hardware}", environment, document)

    print(f"{'':24} {'n':>8}  median ms [quartiles]          largest error")
    for row in rows:
        spread = f"[{row['lower_quartile_ms']:.3f}, {row['upper_quartile_ms']:.3f}]"
        errors = ", ".join(f"{value:.1e} (lam {lam})" for lam, value in (row["max_abs_error"] or {}).items())
        print(f"{row['way']:24} {row['n']:8}  {row['median_ms']:9.3f} {spread:20} {errors}")
    print(f"results are in {path}")
    return 0


if __name__ == "__main__":
    console.run(main)
