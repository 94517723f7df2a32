"""What each way to the relaxed top-k mask costs, and how exact it is: ``python -m scripts.bench.isotonic``.

Times the mask of one long row against its length, from scores to mask: by isotonic optimisation with PAV and with
Dykstra's algorithm (which both need the scores sorted, and their order undone), and by the scalar equation, beside what
JAX offers to select and to sort. Then measures the errors of the same programs over ``lam``, against NumPy in float64.
Figure 4 of the paper is drawn from both. Writes the sections ``isotonic`` of ``<results>/<hardware>.json`` with the
times and ``exactness`` with the errors, which no load on the machine changes (``--only errors``).
Ten minutes on two cores, most of them to compile what the errors are of, once for every ``lam``.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ops
from experiments.core import console
from ops import isotonic, topk
from scripts.bench import contestants, oracle, record
from scripts.bench.sizes import Case
from scripts.bench.timing import Budget, interleave

_MODULE = "scripts.bench.isotonic"

SIZES = [100, 300, 400, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
LAMS = [1e-4, 1e-3, 0.01, 0.1, 1.0]
_TIMED_LAM = 0.1
_SEED = 0
_RECORDS = {"times": "isotonic", "errors": "exactness"}
_ROUTER = Case(1, 400, 28)  # the paper's: 28 of the 400 tokens of a group

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


def case_of(n: int) -> Case:
    """A row of ``n`` entries of which a tenth is selected; of 400, what the paper's routers select."""
    return _ROUTER if n == _ROUTER.n else Case(1, n, n // 10)


def measure_times(case: Case, budget: Budget) -> list[dict[str, Any]]:
    """Quartiles of the time of every way, for a row of standard normal float32."""
    x = jnp.asarray(contestants.draw(case, _SEED).x)
    calls = {
        name: functools.partial(_finished, compiled, x, case.k, _TIMED_LAM)
        for name, compiled in _programs(case).items()
    }
    for call in calls.values():
        call()
    times = interleave(calls, budget)
    return [{"way": name, "n": case.n, "k": case.k, **found._asdict()} for name, found in times.items()]


def measure_errors(case: Case, lams: Sequence[float]) -> list[dict[str, Any]]:
    """The largest error of an entry, by ``lam``, of every way that returns the mask of the same row."""
    rows = []
    inputs = contestants.draw(case, _SEED)
    for lam in lams:
        exact = oracle.expected(oracle.Reference("mask", 2.0, lam), inputs.x, case.k, inputs.weights).output
        for name, compiled in _programs(case).items():
            if WAYS[name].mask:
                error = np.abs(np.asarray(compiled(jnp.asarray(inputs.x), case.k, lam), np.float64) - exact).max()
                rows.append({"way": name, "n": case.n, "k": case.k, "lam": lam, "max_abs_error": float(error)})
    return rows


def _programs(case: Case) -> dict[str, Operator]:
    """The ways that are measured at this size."""
    return {name: _compiled(way) for name, way in WAYS.items() if case.n <= way.largest}


@functools.cache  # so that errors are those of the programs that were timed
def _compiled(way: Way) -> Operator:
    # A `lam` that is known to be positive spares the operator the hard mask.
    return jax.jit(way.operator, static_argnums=(1, 2))


def _finished(compiled: Operator, *arguments: Any) -> None:
    compiled(*arguments).block_until_ready()


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--only", choices=_RECORDS, help="left out: both")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the rows, >= 10")
    parser.add_argument("--lams", type=float, nargs="+", default=LAMS, help=f"of the errors; times: {_TIMED_LAM}")
    parser.add_argument("--seconds", type=float, default=8.0, help="of timed calls, for each size")
    options = record.parse(parser, arguments, harmless=("only",))
    if min(options.sizes) < 10:
        parser.error(f"--sizes: must be at least 10, got {min(options.sizes)}")
    measures = {
        "times": functools.partial(measure_times, budget=Budget(options.seconds, fewest=5, most=400)),
        "errors": functools.partial(measure_errors, lams=options.lams),
    }
    settings = {"sizes": options.sizes, "lam": _TIMED_LAM, "lams": options.lams, "seconds": options.seconds}
    for part in [options.only] if options.only else measures:
        environment, rows = record.begin(_MODULE, arguments, options.results), []
        for n in options.sizes:
            begun = time.monotonic()
            rows += measures[part](case_of(n))
            print(f"{part}, n = {n}: {time.monotonic() - begun:.0f} s", flush=True)
        document = {"settings": settings | {"p": 2.0, "seed": _SEED}, "rows": rows}
        print(f"results are in {record.write(options.results, _RECORDS[part], environment, document)}")
    return 0


if __name__ == "__main__":
    console.run(main)
