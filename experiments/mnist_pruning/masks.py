"""Relaxed top-k masks of the literature, by name, for the backward pass behind a hard top-k."""

from collections.abc import Callable

import jax

from ops import baselines

Mask = Callable[[jax.Array, int, jax.Array], jax.Array]  # (magnitudes [n], k, key) -> mask [n]

# What `config.mask.strength` is called by each operator.
MASKS = {
    "entropic_ot": "epsilon",
    "perturbed": "sigma",
    "sigmoid": "temperature",
    "lapsum": "temperature",
    "softsort": "temperature",
    "neuralsort": "temperature",
}


def make(name: str, strength: float, num_samples: int = 1) -> Mask:
    """The mask called `name` at a strength; `num_samples` are those of the perturbed one."""
    operator: Callable[..., jax.Array] = getattr(baselines, f"{name}_topk_mask")
    options = {MASKS[name]: strength}
    if name == "perturbed":
        return lambda x, k, key: operator(x, k, key=key, num_samples=num_samples, **options)
    return lambda x, k, key: operator(x, k, **options)
