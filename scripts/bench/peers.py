"""Other people's packages. Each is optional; one that cannot be used is named, with the reason."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from scripts.bench.contestants import BOTH, FORWARD, Contestant, Inputs, jax_calls
from scripts.bench.failure import why
from scripts.bench.oracle import Reference
from scripts.bench.record import versions
from scripts.bench.timing import Call

BOX_SECTION = "jaxopt box section"


class UnusableError(Exception):
    """The package is there, but of no use on this machine."""


def _jaxopt() -> Contestant:
    """The projection of ``x`` (``lam = 1``) onto ``{0 <= y <= 1, sum y = k}``: our mask for ``p = 2``."""
    from jaxopt.projection import projection_box_section

    def prepare(inputs: Inputs) -> dict[str, Callable[[], Any]]:
        def project(x: Array) -> Array:
            return projection_box_section(x, (jnp.zeros_like(x), jnp.ones_like(x), jnp.ones_like(x), inputs.case.k))

        def weighted_sum(x: Array, weights: Array) -> Array:
            return jnp.sum(project(x) * weights)

        # Differentiated row by row and then batched: the other way round its Bisection leaks a tracer.
        gradient = jax.value_and_grad(weighted_sum)
        if inputs.case.batch > 1:
            return jax_calls(jax.vmap(project), inputs, gradient=jax.vmap(gradient))
        row = inputs._replace(x=inputs.x[0], weights=inputs.weights[0])
        return jax_calls(project, row, gradient=gradient)

    return Contestant(BOX_SECTION, prepare, Reference("mask", 2.0, 1.0))


def _ott() -> Contestant:
    """Entropic optimal transport with the package's own settings; approximates the hard mask."""
    from ott.tools.soft_sort import topk_mask

    def prepare(inputs: Inputs) -> dict[str, Callable[[], Any]]:
        return jax_calls(lambda x: topk_mask(x, k=inputs.case.k), inputs)

    # Measured: seconds a call at 128 x 1000.
    return Contestant("ott topk_mask", prepare, Reference("hard mask"), tolerance=None, limit=200_000)


def _entmax() -> Contestant:
    """The same projection as jaxopt's, by bisection in PyTorch."""
    import torch
    from entmax import budget_bisect

    if jax.default_backend() != "cpu" and not torch.cuda.is_available():
        raise UnusableError("this PyTorch runs on the CPU only")
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"

    def wait(result: Any) -> Any:
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    def prepare(inputs: Inputs) -> dict[str, Callable[[], Any]]:
        x, weights = torch.tensor(inputs.x, device=device), torch.tensor(inputs.weights, device=device)

        def forward() -> Any:
            return budget_bisect(x, budget=float(inputs.case.k), dim=-1)

        def both() -> Any:
            leaf = x.clone().requires_grad_()
            y = budget_bisect(leaf, budget=float(inputs.case.k), dim=-1)
            (gradient,) = torch.autograd.grad((y * weights).sum(), leaf)
            return gradient

        return {FORWARD: Call(forward, wait), BOTH: Call(both, wait)}

    # Measured: several seconds a call at 1e7. Its OpenMP threads go on spinning for a moment after a call.
    return Contestant("entmax budget_bisect", prepare, Reference("mask", 2.0, 1.0), limit=6_000_000, settle=0.01)


@dataclasses.dataclass(frozen=True)
class _Peer:
    load: Callable[[], Contestant]
    packages: tuple[str, ...]


_PEERS = {
    "jaxopt": _Peer(_jaxopt, ("jaxopt",)),
    "ott": _Peer(_ott, ("ott-jax",)),
    "entmax": _Peer(_entmax, ("entmax", "torch")),
}
PEERS = tuple(_PEERS)


def load(wanted: Iterable[str]) -> tuple[list[Contestant], dict[str, dict[str, Any]]]:
    """Imports peers.

    Returns:
      The contestants that can run, and for every known peer its status (``used``, ``missing``, ``unusable`` or ``not
      wanted``), the reason, and the versions of its packages.
    """
    wanted = set(wanted)
    contestants, record = [], {}
    for name, peer in _PEERS.items():
        entry: dict[str, Any] = {"status": "not wanted", "reason": None, "packages": versions(peer.packages)}
        record[name] = entry
        if name not in wanted:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                contestants.append(dataclasses.replace(peer.load(), peer=name))
        except UnusableError as error:
            entry.update(status="unusable", reason=str(error))
        except Exception as error:  # a package out of step with JAX fails in its own way
            entry.update(status="missing", reason=why(error))
        else:
            entry["status"] = "used"
    return contestants, record
