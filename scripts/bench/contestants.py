"""The operators of this repository, and what JAX itself offers, in the form the benchmark times them."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ops import hard_topk_mask, topk_mag, topk_mask
from scripts.bench.oracle import Reference
from scripts.bench.sizes import Case
from scripts.bench.timing import Call

FORWARD = "forward"
BOTH = "forward+backward"
MODES = (FORWARD, BOTH)

TOP_K = "lax.top_k"
"""The baseline named in the targets: the plain call, which returns values and indices."""


class Inputs(NamedTuple):
    """Scores and the weights of the sum that is differentiated, both standard normal float32 of shape (batch, n)."""

    case: Case
    x: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Contestant:
    """Somebody who runs.

    Attributes:
      name: unique.
      prepare: from inputs to one function without arguments for each mode it can be timed in. Such a function
        returns when its result is there: the output under ``FORWARD``, the gradient with respect to ``x`` under
        ``BOTH`` (which also computes the weighted sum of the outputs), the one to be checked last if several. Those
        that are a ``timing.Call`` are queued on accelerators.
      reference: what the output should be.
      function: for those in JAX, from ``x`` and ``k`` to what ``prepare`` times.
      peer: name of the peer it belongs to, None for what comes with JAX and this repository.
      tolerance: largest error of an output entry, and relative error of the gradient, with which it is still timed;
        None for a method that is inexact by design.
      limit: number of entries ``batch * n`` above which it is skipped.
      settle: seconds to wait, untimed, after its turn, until its threads sleep.
    """

    name: str
    prepare: Callable[[Inputs], Mapping[str, Callable[[], Any]]]
    reference: Reference
    function: Callable[..., Any] | None = None
    peer: str | None = None
    tolerance: tuple[float, float] | None = (1e-4, 1e-3)
    limit: int | None = None
    settle: float = 0.0

    @property
    def ours(self) -> bool:
        """Whether this repository answers for it."""
        return self.name.startswith(("topk_", "hard_topk_"))


def draw(case: Case, seed: int) -> Inputs:
    """The inputs of a case."""
    rng = np.random.default_rng([seed, *case])
    x, weights = (rng.standard_normal((case.batch, case.n), dtype=np.float32) for _ in range(2))
    return Inputs(case, x, weights)


def jax_calls(
    function: Callable[[Array], Any],
    inputs: Inputs,
    differentiable: bool = True,
    gradient: Callable[[Array, Array], Any] | None = None,
) -> dict[str, Callable[[], Any]]:
    """Both modes of a JAX function of ``x``, compiled as a whole.

    Args:
      function: from ``x`` to the output, or to a tuple with the output last.
      inputs: what it is called on.
      differentiable: whether there is a gradient worth timing.
      gradient: from ``x`` and ``weights`` to value and gradient of the weighted sum, where the default will not do.
    """
    x, weights = jnp.asarray(inputs.x), jnp.asarray(inputs.weights)

    def weighted_sum(x: Array, weights: Array) -> Array:
        y = function(x)
        y = y[-1] if isinstance(y, tuple) else y
        return jnp.sum(y * weights[..., : y.shape[-1]])

    forward = jax.jit(function)
    calls: dict[str, Callable[[], Any]] = {FORWARD: Call(functools.partial(forward, x), jax.block_until_ready)}
    if differentiable:
        both = jax.jit(gradient or jax.value_and_grad(weighted_sum))
        calls[BOTH] = Call(functools.partial(both, x, weights), jax.block_until_ready)
    return calls


def _top_k(x: Array, k: int) -> tuple[Array, Array]:
    values, indices = lax.top_k(x, k)
    return indices, values


def _top_k_mask(x: Array, k: int) -> Array:
    indices = lax.top_k(x, k)[1]
    rows = lax.broadcasted_iota(indices.dtype, indices.shape, 0)
    return jnp.zeros_like(x).at[rows, indices].set(1.0, unique_indices=True)


def _contestant(
    name: str, function: Callable[..., Any], reference: Reference, differentiable: bool = True
) -> Contestant:
    def prepare(inputs: Inputs) -> dict[str, Callable[[], Any]]:
        return jax_calls(functools.partial(function, k=inputs.case.k), inputs, differentiable)

    return Contestant(name, prepare, reference, function)


def operator_name(operator: str, p: str, lam: float = 1.0, debias: bool = False) -> str:
    """The name of one of our contestants, such as ``topk_mask p=4/3 lam=0.1``."""
    return f"{operator} p={p}" + (" debias" if debias else "") + (f" lam={lam:g}" if lam != 1.0 else "")


EXPONENTS = {"2": 2.0, "4/3": 4 / 3}


def operators(lams: Sequence[float] = (1.0, 0.1, 1e-4)) -> list[Contestant]:
    """The operators of this repository, the mask for every ``lam``; it is 1 where the name does not say otherwise."""
    found = []
    for lam in lams:
        for label, p in EXPONENTS.items():
            name = operator_name("topk_mask", label, lam)
            found.append(_contestant(name, functools.partial(topk_mask, lam=lam, p=p), Reference("mask", p, lam)))
    for debias in (False, True):
        for label, p in EXPONENTS.items():
            name = operator_name("topk_mag", label, debias=debias)
            reference = Reference("magnitude", p, 1.0, debias)
            found.append(_contestant(name, functools.partial(topk_mag, lam=1.0, p=p, debias=debias), reference))
    found.append(_contestant("hard_topk_mask", hard_topk_mask, Reference("hard mask"), differentiable=False))
    return found


def baselines() -> list[Contestant]:
    """What JAX offers. The masks that are constant almost everywhere have no gradient to time."""
    return [
        _contestant(TOP_K, _top_k, Reference("largest")),
        _contestant("lax.top_k mask", _top_k_mask, Reference("hard mask"), differentiable=False),
        _contestant("jnp.sort", lambda x, k: jnp.sort(x), Reference("sorted")),
    ]
