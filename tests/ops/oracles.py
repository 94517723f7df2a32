"""The operators of single vectors once more, by algorithms that share nothing with those under test.

``pooled`` asks ``tests.ops.oracle``, ``generic`` and ``projected`` hand the definition to SciPy's SLSQP, ``hard``
sorts.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from tests.ops.oracle.equation import Curve
from tests.ops.oracle.problem import problem
from tests.ops.oracle.topk import topk


def samples(shape, seed=0, dtype=np.float64):
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def by_rows(function, x, k, lam):
    """``function(row, k, lam)`` for each row of a matrix; ``k`` and ``lam`` are scalars or one per row."""
    k, lam = np.broadcast_to(k, len(x)), np.broadcast_to(lam, len(x))
    return np.stack([function(*row) for row in zip(x, k, lam, strict=True)])


def weights(n, k):
    """``1_k``: ones, a remainder, zeros."""
    return np.clip(k - np.arange(n), 0.0, 1.0)


def pooled(x, k, lam, p=2.0, kind="mask", debias=False):
    """The mask, or the magnitude operator, of one vector from its scalar equation."""
    return differentiated(np.asarray(x)[None], k, lam, p, kind, debias)["value"][0]


def differentiated(x, k, lam, p=2.0, kind="mask", debias=False, cotangent=1.0):
    """``value``, ``x``, ``k`` and ``lam``: the operator of rows and its derivatives; NaN where there is no one.

    ``kind`` may also be the name of a nonlinearity.
    """
    curve = Curve({"mask": "identity", "mag": "half_square"}.get(kind, kind))
    wanted = topk(problem(x, k, lam, p, cotangent=cotangent), curve, debias).wanted
    return {name: values.astype(np.float64) for name, values in wanted.items()}


def generic(x, k, lam, p, kind="mask", members=None):
    """The mask, or the magnitude operator, of one short vector by a general-purpose convex solver.

    With ``k_support_norm(r)^2 = min sum r^2 / z`` over ``0 <= z <= 1, sum(z) = k`` (Argyriou et al., 2012). Entries
    of one number in ``members`` form a group: ``r`` are root mean squares, and products are means.
    """
    n = x.size
    belongs = np.arange(n)[:, None] == np.arange(n) if members is None else np.unique(members)[:, None] == members
    share = belongs / belongs.sum(axis=1, keepdims=True)

    def objective(parameters):
        y, z = parameters[:n], parameters[n:]
        if kind == "mask":
            return lam / p * np.sum(z**p) - x @ z, np.r_[0 * y, lam * z ** (p - 1) - x]
        r = np.sqrt(share @ y**2)
        value = np.sum(r**2 / z) / 2 + lam / p * np.sum(r**p) - np.sum(share @ (x * y))
        pull = 1 / z + lam * np.maximum(r, 1e-30) ** (p - 2)
        return value, np.r_[y * (pull @ share) - x * share.sum(axis=0), -((r / z) ** 2) / 2]

    found = optimize.minimize(
        objective,
        np.concatenate([0.5 * x, np.full(len(share), k / len(share))]),
        jac=True,
        method="SLSQP",
        bounds=n * [(None, None)] + len(share) * [(0 if kind == "mask" else 1e-7, 1)],
        constraints={"type": "eq", "fun": lambda parameters: parameters[n:].sum() - k},
        options={"ftol": 1e-15, "maxiter": 3000},
    )
    return found.x[n:] if kind == "mask" else found.x[:n]


def projected(x, w, lam, p):
    """The projection of one short vector onto the permutahedron of ``w``: the best mixture of its permutations."""
    vertices = np.array(list(itertools.permutations(w)))

    def objective(shares):
        y = shares @ vertices
        return lam / p * np.sum(np.abs(y) ** p) - x @ y

    found = optimize.minimize(
        objective,
        np.full(len(vertices), 1 / len(vertices)),
        method="SLSQP",
        bounds=[(0, 1)] * len(vertices),
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x @ vertices


def hard(x, k):
    """The hard mask of one vector, by a stable sort of the negated values; ``-0.0`` and ``0.0`` tie."""
    x = np.asarray(x)
    mask = np.zeros(x.shape, np.float64)
    mask[np.argsort(-x.astype(np.float64), kind="stable")[: int(k)]] = 1.0
    return mask


def check_derivatives(function, arguments, tolerance=1e-6, step=1e-6):
    """First derivatives in both modes, and second ones, of all arguments at once against central differences.

    By one program: the gradients of ``sum(c * function(*arguments))``, for a random ``c``, and the derivatives of value
    and gradients along a direction, forward over reverse. Rows that do not depend on each other are tried all at once.

    Args:
      function: of float64 arrays, returning one.
      arguments: these arrays.
      tolerance: how far derivatives may be off, beside 1 and beside themselves.
      step: how far the arguments move, beside 1.

    Returns:
      The value at ``arguments``.
    """
    rng = np.random.default_rng(0)
    arguments = tuple(np.asarray(a, np.float64) for a in arguments)
    cotangent = rng.normal(size=jax.eval_shape(function, *arguments).shape)

    def weighed(*arguments):
        y = function(*arguments)
        return jnp.sum(cotangent * y), y

    def first(*arguments):
        (_, y), gradients = jax.value_and_grad(weighed, range(len(arguments)), has_aux=True)(*arguments)
        return [y, *gradients]

    both = jax.jit(lambda arguments, tangents: jax.jvp(first, arguments, tangents))
    for _ in range(2):
        tangents = tuple(rng.normal(size=a.shape) for a in arguments)
        moved = [tuple(a + h * t for a, t in zip(arguments, tangents, strict=True)) for h in (step, -step)]
        (right, _), (left, _), (here, pushed) = (both(at, tangents) for at in (*moved, arguments))
        for found, after, before in zip(pushed, right, left, strict=True):
            np.testing.assert_allclose(found, (after - before) / (2 * step), rtol=tolerance, atol=tolerance)
        pulled = sum(np.vdot(g, t) for g, t in zip(here[1:], tangents, strict=True))
        np.testing.assert_allclose(pulled, np.vdot(cotangent, pushed[0]), rtol=1e-9, atol=1e-9)
        assert min(np.abs(pushed[0]).max(), max(np.abs(leaf).max() for leaf in pushed[1:])) > 100 * tolerance
    return np.asarray(here[0])


def check_gradients(function, arguments, tolerance=1e-6, step=1e-6):
    """Gradients of all arguments at once, as in ``check_derivatives``, of what has no others; returns the value."""
    rng = np.random.default_rng(0)
    arguments = tuple(np.asarray(a, np.float64) for a in arguments)
    cotangent = rng.normal(size=jax.eval_shape(function, *arguments).shape)

    @jax.jit
    def both(arguments):
        y, pull = jax.vjp(function, *arguments)
        return y, pull(cotangent)

    y, gradients = both(arguments)
    for _ in range(2):
        tangents = tuple(rng.normal(size=a.shape) for a in arguments)
        right, left = (
            both(tuple(a + h * t for a, t in zip(arguments, tangents, strict=True)))[0] for h in (step, -step)
        )
        found = sum(np.vdot(g, t) for g, t in zip(gradients, tangents, strict=True))
        np.testing.assert_allclose(found, np.vdot(cotangent, right - left) / (2 * step), rtol=tolerance, atol=tolerance)
    return np.asarray(y)


def equations(jaxpr):
    """All equations of a jaxpr, those of its inner jaxprs included."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in jaxpr.eqns:
        yield equation
        for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(leaf):
                yield from equations(leaf)


def _is_jaxpr(value):
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def compilations(caplog, calls):
    """How many operators JAX compiles in the calls."""
    caplog.clear()
    with jax.log_compiles(True):
        for call in calls:
            jax.block_until_ready(call())
    return sum("Finished XLA compilation" in r.message and "_compiled" in r.message for r in caplog.records)
