"""Masks and selections: the operators of this repository, JAX's own, and other packages, where they are installed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import ops
from scripts.bench.timing import Call, why

FORWARD = "forward"
BOTH = "forward+backward"
MODES = (FORWARD, BOTH)
TOP_K = "lax.top_k"  # the baseline: the plain call, which returns values and indices
COPY = "copy"  # reads and writes the entries once: the least that any mask can take
BOX_SECTION = "jaxopt box section"
EXPONENTS = {"2": 2.0, "4/3": 4 / 3}
_CHECKED = 20_000  # entries compared with a reference, at least one row
_CLOSE = 1e-6  # distance from 0 or 1 within which an entry counts as selected not at all, or wholly

Calls = dict[str, Callable[[], Any]]  # by mode
Function = Callable[..., Any]  # of `x` and `k`


class Shape(NamedTuple):
    """Top ``k`` of each row of a ``(batch, n)`` array."""

    batch: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"({self.batch}, {self.n}, {self.k})"


class Inputs(NamedTuple):
    """Scores and the weights of the sum that is differentiated, both standard normal float32 of shape (batch, n)."""

    shape: Shape
    x: np.ndarray
    weights: np.ndarray


def draw(shape: Shape) -> Inputs:
    """The inputs of a shape."""
    rng = np.random.default_rng([0, *shape])
    x, weights = (rng.standard_normal((shape.batch, shape.n), dtype=np.float32) for _ in range(2))
    return Inputs(shape, x, weights)


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A function that is timed.

    ``prepare`` takes inputs to a function without arguments for each mode it can be timed in. It returns when its
    result is there: the output under ``FORWARD``, the gradient with respect to ``x`` under ``BOTH`` (which also
    computes the weighted sum of the outputs), the one to be checked last if several.
    """

    name: str
    reference: Function  # gives the output that it should have, from `x` and `k`
    prepare: Callable[[Inputs], Calls]
    # Largest error of an output entry, and relative error of the gradient; None for a method that is inexact by design.
    tolerance: tuple[float, float] | None = (1e-4, 1e-3)
    limit: float = np.inf  # entries above which it is skipped
    is_mask: bool = True  # the outputs of a row sum to k

    def errors(self, inputs: Inputs, results: Mapping[str, Any]) -> dict[str, float]:
        """Compares results by mode with the reference in float64, on rows spread over the batch.

        Returns:
          ``max_abs_error`` of an output entry, ``relative_gradient_error``, in norms, and of masks
          ``relative_sum_error``, ``|sum - k| / k`` of the worst row.

        Raises:
          ValueError: one of the first two is above the tolerance, or no number.
        """
        batch, n, k = inputs.shape
        rows = np.unique(np.linspace(0, batch - 1, max(1, min(batch, _CHECKED // n))).astype(int))
        output, gradient = expected(self.reference, inputs.x[rows], k, inputs.weights[rows])
        arrays = {mode: _array(result).reshape(batch, -1)[rows] for mode, result in results.items()}
        errors = {"max_abs_error": float(np.max(np.abs(arrays[FORWARD] - output)))}
        if BOTH in arrays and self.tolerance:
            difference = arrays[BOTH] - gradient
            if self.is_mask:  # a float32 may fall on the other side of a kink, where the gradient is another
                difference = np.where(_side(arrays[FORWARD]) == _side(output), difference, 0.0)
            size = np.linalg.norm(gradient) or 1.0
            errors["relative_gradient_error"] = float(np.linalg.norm(difference) / size)
        if not all(error <= limit for error, limit in zip(errors.values(), self.tolerance or (np.inf,), strict=False)):
            raise ValueError(f"off by more than the tolerance, {self.tolerance}: {errors}")
        if self.is_mask:
            errors["relative_sum_error"] = float(np.max(np.abs(arrays[FORWARD].sum(-1) - k)) / k)
        return errors


def expected(reference: Function, x: np.ndarray, k: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output of a reference, which tests hold to an oracle, on rows in float64, and gradient of its weighted sum."""
    with jax.enable_x64(True):
        apply = functools.partial(reference, k=k)
        gradient = jax.jit(jax.grad(functools.partial(weighted_sum, apply)))
        wide = jnp.asarray(x, jnp.float64), jnp.asarray(weights, jnp.float64)
        return _array(jax.jit(apply)(wide[0])), _array(gradient(*wide))


def _array(result: Any) -> np.ndarray:
    result = _last(result)
    return np.asarray(result.cpu() if hasattr(result, "cpu") else result, np.float64)


def _last(result: Any) -> Any:
    return result[-1] if isinstance(result, tuple | list) else result


def _side(mask: np.ndarray) -> np.ndarray:
    return (mask > _CLOSE).astype(int) + (mask > 1 - _CLOSE)


def weighted_sum(function: Function, x: Array, weights: Array) -> Array:
    """Returns the weighted sum of the outputs, whose rows may be shorter than those of the weights."""
    y = _last(function(x))
    return jnp.sum(y * weights[..., : y.shape[-1]])


def jax_calls(function: Function, inputs: Inputs, gradient: Callable[..., Any] | None = None) -> Calls:
    """Both modes of a function of ``x`` and ``k``; ``gradient`` replaces value and gradient of the weighted sum."""
    x, weights = jnp.asarray(inputs.x), jnp.asarray(inputs.weights)
    apply = functools.partial(function, k=inputs.shape.k)
    both = jax.jit(gradient or jax.value_and_grad(functools.partial(weighted_sum, apply)))
    return {FORWARD: Call(functools.partial(jax.jit(apply), x)), BOTH: Call(functools.partial(both, x, weights))}


def _without_gradient(function: Function, inputs: Inputs) -> Calls:
    return {FORWARD: jax_calls(function, inputs)[FORWARD]}


def operators(lams: Sequence[float]) -> dict[str, Function]:
    """The operators by name, such as ``topk_mask p=4/3 lam=0.1``; lam is 1 where the name does not say otherwise."""
    functions: dict[str, Function] = {}
    for lam, (label, p) in itertools.product(lams, EXPONENTS.items()):
        name = f"topk_mask p={label}" + (f" lam={lam:g}" if lam != 1.0 else "")
        functions[name] = functools.partial(ops.topk_mask, lam=lam, p=p)
    for debias, (label, p) in itertools.product((False, True), EXPONENTS.items()):
        functions[f"topk_mag p={label}" + " debias" * debias] = functools.partial(
            ops.topk_mag, lam=1.0, p=p, debias=debias
        )
    return functions


def contestants(lams: Sequence[float]) -> Iterator[Contestant]:
    """The operators, and what JAX offers; masks that are constant almost everywhere have no gradient to time."""
    of_jax = {TOP_K: _top_k, "jnp.sort": lambda x, k: jnp.sort(x), COPY: lambda x, k: -x}
    for name, function in (operators(lams) | of_jax).items():
        yield Contestant(name, function, functools.partial(jax_calls, function), is_mask="mask" in name)
    for name, function in (("hard_topk_mask", ops.hard_topk_mask), ("lax.top_k mask", _top_k_mask)):
        yield Contestant(name, _top_k_mask, functools.partial(_without_gradient, function))


def _top_k(x: Array, k: int) -> tuple[Array, Array]:
    values, indices = lax.top_k(x, k)
    return indices, values


def _top_k_mask(x: Array, k: int) -> Array:
    indices = lax.top_k(x, k)[1]
    rows = lax.broadcasted_iota(indices.dtype, indices.shape, 0)
    return jnp.zeros_like(x).at[rows, indices].set(1.0, unique_indices=True)


def peers() -> tuple[list[Contestant], dict[str, str]]:
    """Other people's contestants that can run, and by package the reason why others cannot."""
    available, missing = [], {}
    for name, load in _PEERS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                available.append(load())
        except Exception as error:  # a package out of step with JAX fails in its own way
            missing[name] = why(error)
    return available, missing


def _projected(x: Array, k: int) -> Array:
    """The projection of ``x`` onto ``{0 <= y <= 1, sum y = k}``."""
    return ops.topk_mask(x, k, lam=1.0, p=2.0)


def _jaxopt() -> Contestant:
    from jaxopt.projection import projection_box_section

    def project(x: Array, k: int) -> Array:
        return projection_box_section(x, (jnp.zeros_like(x), jnp.ones_like(x), jnp.ones_like(x), k))

    def prepare(inputs: Inputs) -> Calls:
        # Differentiated row by row and then batched: the other way round its Bisection leaks a tracer.
        row = functools.partial(project, k=inputs.shape.k)
        gradient = jax.value_and_grad(functools.partial(weighted_sum, row))
        if inputs.shape.batch > 1:
            return jax_calls(lambda x, k: jax.vmap(row)(x), inputs, gradient=jax.vmap(gradient))
        return jax_calls(project, inputs._replace(x=inputs.x[0], weights=inputs.weights[0]), gradient=gradient)

    return Contestant(BOX_SECTION, _projected, prepare)


def _softjax() -> Contestant:
    """SoftSort's mask: the sum of the soft indices of the k largest; approximates the hard mask in n * k entries."""
    import softjax

    def mask(x: Array, k: int) -> Array:
        indices: Any = softjax.top_k(x, k, method="softsort")[1]
        return indices.sum(axis=-2)

    prepare = functools.partial(jax_calls, mask)
    return Contestant("softjax softsort mask", _top_k_mask, prepare, tolerance=None, limit=200_000)


def _entmax() -> Contestant:
    """The projection by bisection in PyTorch."""
    from entmax import budget_bisect

    # Measured: several seconds a call at 1e7.
    prepare = functools.partial(_torch_calls, lambda x, k: budget_bisect(x, budget=float(k), dim=-1), _torch())
    return Contestant("entmax budget_bisect", _projected, prepare, limit=6_000_000)


def _torch_topk() -> Contestant:
    torch = _torch()
    prepare = functools.partial(_torch_calls, lambda x, k: torch.topk(x, k, dim=-1).values, torch)
    return Contestant("torch.topk", _top_k, prepare, is_mask=False)


def _torch() -> Any:
    import torch

    if jax.default_backend() != "cpu" and not torch.cuda.is_available():
        raise RuntimeError("this PyTorch runs on the CPU only")
    return torch


def _torch_calls(function: Function, torch: Any, inputs: Inputs) -> Calls:
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    x, weights = torch.tensor(inputs.x, device=device), torch.tensor(inputs.weights, device=device)

    def wait(result: Any) -> Any:
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    def both() -> Any:
        leaf = x.clone().requires_grad_()
        y = function(leaf, inputs.shape.k)
        return torch.autograd.grad((y * weights[:, : y.shape[1]]).sum(), leaf)[0]

    return {FORWARD: Call(lambda: function(x, inputs.shape.k), wait), BOTH: Call(both, wait)}


_PEERS = {"jaxopt": _jaxopt, "softjax": _softjax, "entmax": _entmax, "torch": _torch_topk}
