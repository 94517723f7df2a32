"""Findings on the operators, which need no results: they are computed here, in float64."""

from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.core.report.finding import Finding, Verdict, in_every_case
from ops import hard_topk_mag, topk_fenchel_young_loss, topk_mag, topk_mask

_ROWS, _N, _K, _LAM = 20, 1000, 100, 0.1
_HERE, _COUNTEREXAMPLE = "computed here", "a counterexample"


def sparsity(_: Path) -> Finding:
    """Exact zeros of the mask for p = 2 and 4/3, and its sum."""
    counts, sparse = [], []
    for p in (2.0, 4 / 3):
        with jax.enable_x64(True):
            mask = np.asarray(jax.jit(lambda x, p=p: topk_mask(x, _K, lam=_LAM, p=p))(_normal()))
        nonzero = (mask != 0).sum(axis=1)
        counts.append(float(nonzero.mean()))
        sparse.append(bool(np.allclose(mask.sum(axis=1), _K)) and nonzero.max() < _N / 2)
    most = f"{max(counts):.0f} of {_N:,} entries are not 0, k = {_K}"
    return Finding(Verdict(in_every_case(sparse), most), None, _HERE)


def smoothness(_: Path) -> Finding:
    """Jumps of the derivative of the mask for p = 4/3, where an entry leaves 0 and where it reaches 1.

    The masks are those of (s, 1, 1), k = 1, and (s, 0, 0), k = 2, at lam = 1.
    """
    half = 0.5 ** (4 / 3 - 1)  # the gap of an entry selected by half, as two others are
    with jax.enable_x64(True):
        slope = jax.jit(
            jax.vmap(
                jax.jacfwd(lambda s, rest: topk_mask(jnp.stack([s, rest, rest]), 1 + (1 - rest), p=4 / 3, lam=1.0)[0])
            )
        )
        before, after = (
            np.asarray(slope(jnp.full(2, 1 - half + step), jnp.array([1.0, 0.0]))) for step in (-1e-9, 1e-9)
        )
    jumps = np.abs(after - before)
    verdict = in_every_case(jump < 1e-2 for jump in jumps)
    return Finding(Verdict(verdict, f"gradient jumps by {jumps.max():.2f}"), None, _COUNTEREXAMPLE)


def error_bound(_: Path) -> Finding:
    """The error of the relaxed top-k in magnitude over its bound, for p = 2 and lam so small that nothing is pooled."""
    lam = 1e-4
    with jax.enable_x64(True):
        x = _normal()
        error = jnp.abs(topk_mag(x, _K, lam=lam) - hard_topk_mag(x, _K)).max(-1)
        ratio = float((error / (lam * jnp.abs(x).max(-1))).max())
    return Finding(Verdict(in_every_case([ratio <= 1]), f"{ratio:.4f} of the bound at most"), None, _HERE)


def loss_is_bounded(_: Path) -> Finding:
    """How the top-3 loss changes when all logits fall by 100: a Fenchel-Young loss is never negative.

    The one-hot target is the paper's, the smooth one lies inside the polytope.
    """

    def verdict(kind: Literal["one_hot", "smooth"]) -> Verdict:
        before, after = (
            float(topk_fenchel_young_loss(logits - shift, target, k=3, lam=1.0, target=kind)) for shift in (0, 100)
        )
        change = round(after - before, 9) + 0.0
        return Verdict(in_every_case([after >= 0]), f"shifted logits change it by {change:g}")

    with jax.enable_x64(True):
        logits, target = _normal()[0, :10], jnp.zeros(10).at[0].set(1.0)
        return Finding(verdict("one_hot"), verdict("smooth"), _COUNTEREXAMPLE)


def _normal() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(_ROWS, _N)))
