"""The sections ``isotonic`` and ``exactness``: what each way to the relaxed top-k mask costs, and how exact it is.

Times of the mask of one long row by PAV and by Dykstra's algorithm (with the sort that both need) and by the scalar
equation, beside what JAX offers to select and to sort, and of the batches that a router has; and errors over ``lam``.
Figure 4 is drawn from both. On a CPU also isotonic regression alone, which other packages have too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ops
from ops import isotonic
from scripts.bench.contestants import Shape, draw
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Call, Contest

SIZES = [100, 300, 400, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
LAMS = [1e-4, 1e-3, 0.01, 0.1, 1.0]
_TIMED_LAM = 0.1
_LONGEST = 10**5  # entries of a row above which the isotonic solvers are left out
_ROUTER = Shape(1, 400, 28)  # the paper's: 28 of the 400 tokens of a group
_BATCHES = (32, 1024)  # rows of that: the experts of a group, and those of 32 groups

SOLVERS: dict[str, Callable[[], Any]] = {
    "PAV": isotonic.PAV,
    # With a tolerance of 0 all iterations are made.
    "Dykstra, 100 iterations": functools.partial(isotonic.Dykstra, max_iter=100, tol=0.0),
    "Dykstra, 10 iterations": functools.partial(isotonic.Dykstra, max_iter=10, tol=0.0),
    "scalar equation": lambda: "threshold",
}


def times(scale: str) -> Group:
    """A case for each size."""
    sizes = {"small": [200], "cpu": SIZES, "device": SIZES[:6]}[scale]  # PAV goes entry by entry, slowly on a device
    seconds = 0.2 if scale == "small" else 8.0
    settings = {"sizes": sizes, "lam": _TIMED_LAM, "seconds": seconds, "p": 2.0, "seed": 0}
    cases = [Case(str(n), functools.partial(measure_times, shape_of(n), seconds), 1.0) for n in sizes]
    batches = _BATCHES if scale != "small" else (2,)
    for batch in batches:
        shape = _ROUTER._replace(batch=batch)
        cases.append(Case(f"{batch} of {shape.n}", functools.partial(measure_batch, shape, seconds), 1.0))
    alone = [n for n in sizes if n in (200, 1000, _LONGEST)] if scale != "device" else []
    cases += [Case(f"regression of {n}", functools.partial(measure_regression, n, seconds), 1.0) for n in alone]
    return Group(settings, cases)


def errors(scale: str) -> Group:
    """A case for each size."""
    sizes, lams = ([200], [0.1, 1.0]) if scale == "small" else (SIZES, LAMS)
    settings = {"sizes": sizes, "lams": lams, "p": 2.0, "seed": 0}
    return Group(settings, [Case(str(n), functools.partial(measure_errors, shape_of(n), lams)) for n in sizes])


def shape_of(n: int) -> Shape:
    """A row of ``n`` entries of which a tenth is selected; of 400, what the paper's routers select."""
    return _ROUTER if n == _ROUTER.n else Shape(1, n, n // 10)


def measure_batch(shape: Shape, seconds: float, contest: Contest) -> Found:
    """The same as `measure_times` for several rows at once."""
    result = measure_times(shape, seconds, contest)
    return {"batches": [{"batch": shape.batch, **row} for row in result["rows"]], "failed": result["failed"]}


def measure_times(shape: Shape, seconds: float, contest: Contest) -> Found:
    """Quartiles of the time of every way, for rows of standard normal float32."""
    calls = contest.compiled(dict(_programs(shape, _TIMED_LAM)), jnp.asarray(draw(shape).x))
    summaries = contest.time(calls, Budget(seconds, fewest=5, most=400))
    rows = [{"way": name, "n": shape.n, "k": shape.k, **time._asdict()} for name, time in summaries.items()]
    return {"rows": rows, "failed": contest.failed}


def measure_regression(n: int, seconds: float, contest: Contest) -> Found:
    """Quartiles of the time of isotonic regression, with decreasing values, of standard normal float32.

    A package whose values are not ours is left out, among those that ``failed``.
    """
    x, calls = draw(shape_of(n)).x[0], {}
    ours = np.asarray(ops.isotonic_regression(x))
    for name, load in REGRESSIONS.items():

        def prepare() -> Call:
            call = Call(load(x))  # noqa: B023
            if not np.allclose(np.asarray(call()), ours, atol=1e-5):
                raise ValueError("its values are others than ours")
            return call

        if call := contest.attempt(name, prepare):
            calls[name] = call
    summaries = contest.time(calls, Budget(seconds, fewest=5, most=400))
    rows = [{"package": name, "n": n, **time._asdict()} for name, time in summaries.items()]
    return {"regressions": rows, "failed": contest.failed}


def _ours(x: np.ndarray) -> Callable[[], Any]:
    return functools.partial(jax.jit(ops.isotonic_regression), jnp.asarray(x))


def _scipy(x: np.ndarray) -> Callable[[], Any]:
    from scipy.optimize import isotonic_regression

    return lambda: isotonic_regression(x, increasing=False).x


def _scikit_learn(x: np.ndarray) -> Callable[[], Any]:
    from sklearn.isotonic import isotonic_regression

    return functools.partial(isotonic_regression, x, increasing=False)


def _torchisotonic(x: np.ndarray) -> Callable[[], Any]:
    import torch
    from torchisotonic import isotonic as isotonic_of

    return functools.partial(isotonic_of, torch.tensor(x), increasing=False)


REGRESSIONS = {"ops": _ours, "SciPy": _scipy, "scikit-learn": _scikit_learn, "torchisotonic": _torchisotonic}


def measure_errors(shape: Shape, lams: Sequence[float], contest: Contest) -> Found:
    """The largest error of an entry, by ``lam``, of every way that returns the mask of the same row."""
    rows, x = [], draw(shape).x
    for lam in lams:
        with jax.enable_x64(True):
            exact = np.asarray(jax.jit(functools.partial(ops.topk_mask, k=shape.k, lam=lam))(x.astype(np.float64)))
        masks = {name: program for name, program in _programs(shape, lam) if name in SOLVERS}
        for name, mask in contest.compiled(masks, jnp.asarray(x)).items():
            error = float(np.abs(np.asarray(mask(), np.float64) - exact).max())
            rows.append({"way": name, "n": shape.n, "k": shape.k, "lam": lam, "max_abs_error": error})
    return {"rows": rows, "failed": contest.failed}


def _programs(shape: Shape, lam: float) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The ways that are measured at this size; a ``lam`` known to be positive spares them the hard mask."""
    for name, solver in SOLVERS.items():
        if shape.n <= _LONGEST or name == "scalar equation":
            yield name, functools.partial(ops.topk_mask, k=shape.k, lam=lam, solver=solver())
    yield "lax.top_k", lambda x: lax.top_k(x, shape.k)[0]
    yield "jnp.sort", jnp.sort
