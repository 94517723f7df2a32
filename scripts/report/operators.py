"""Findings on the operators: computed here in float64, without any results."""

import functools
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.core.report.finding import Finding, Verdict, of_fact
from ops import hard_topk_mag, topk_fenchel_young_loss, topk_mag, topk_mask

_ROWS, _N, _K, _LAM = 20, 1000, 100, 0.1
_HERE, _COUNTEREXAMPLE = "computed here", "a counterexample"


def sparsity(_: Path) -> Finding:
    """Judges whether most entries of the mask are exactly 0, for p = 2 and 4/3."""
    with jax.enable_x64(True):
        masks = np.stack([jax.jit(functools.partial(topk_mask, k=_K, lam=_LAM, p=p))(_normal()) for p in (2.0, 4 / 3)])
    nonzero = (masks != 0).sum(axis=-1)
    is_sparse = bool(np.allclose(masks.sum(axis=-1), _K)) and nonzero.max() < _N / 2
    most = f"{nonzero.mean(axis=-1).max():.0f} of {_N:,} entries are not 0, k = {_K}"
    return Finding(Verdict(of_fact(is_sparse), most), None, _HERE)


def smoothness(_: Path) -> Finding:
    """Judges whether the mask for p = 4/3 is differentiable where an entry leaves 0 and where it reaches 1.

    The masks are those of (s, 1, 1), k = 1, and (s, 0, 0), k = 2, at lam = 1.
    """
    half = 0.5 ** (4 / 3 - 1)  # how far above the threshold an entry is that is selected by half
    with jax.enable_x64(True):
        slope = jax.jit(jax.jacfwd(lambda s, rest, k: topk_mask(jnp.stack([s, rest, rest]), k, p=4 / 3, lam=1.0)[0]))
        jump = max(
            abs(float(slope(1 - half + 1e-9, rest, k) - slope(1 - half - 1e-9, rest, k)))
            for rest, k in ((1.0, 1.0), (0.0, 2.0))
        )
    return Finding(Verdict(of_fact(jump < 1e-2), f"gradient jumps by {jump:.2f}"), None, _COUNTEREXAMPLE)


def error_bound(_: Path) -> Finding:
    """Judges the error of the relaxed top-k in magnitude by its bound, for p = 2 and a lam too small for pooling."""
    lam = 1e-4
    with jax.enable_x64(True):
        x = _normal()
        error = jax.jit(lambda x: jnp.abs(topk_mag(x, _K, lam=lam) - hard_topk_mag(x, _K)).max(-1))(x)
        ratio = float((error / (lam * jnp.abs(x).max(-1))).max())
    return Finding(Verdict(of_fact(ratio <= 1), f"{ratio:.4f} of the bound at most"), None, _HERE)


def loss_is_bounded(_: Path) -> Finding:
    """Judges whether the top-3 loss is a Fenchel-Young loss, which is never negative, by lowering all logits by 100.

    The paper's target is one-hot; the smooth one lies inside the polytope.
    """

    def verdict(kind: Literal["one_hot", "smooth"]) -> Verdict:
        loss = jax.jit(functools.partial(topk_fenchel_young_loss, k=3, lam=1.0, target=kind))
        before, after = (float(loss(logits - shift, target)) for shift in (0, 100))
        change = round(after - before, 9) + 0.0
        text = f"{kind.replace('_', '-')} target: lowering all logits by 100 changes the loss by {change:g}"
        return Verdict(of_fact(after >= 0), text)

    with jax.enable_x64(True):
        logits, target = _normal()[0, :10], jnp.zeros(10).at[0].set(1.0)
        return Finding(verdict("one_hot"), verdict("smooth"), _COUNTEREXAMPLE)


def _normal() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(_ROWS, _N)))
