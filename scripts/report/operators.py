"""Findings on the operators, which need no results: they are computed here, in float64."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.core.report.finding import Finding, Verdict, in_every_case
from ops import hard_topk_mag, topk_fenchel_young_loss, topk_mag, topk_mask

_ROWS, _N, _K, _LAM = 20, 1000, 100, 0.1
_HERE, _COUNTEREXAMPLE = "computed here", "a counterexample"


def sparsity(_: Path) -> Finding:
    """Exact zeros of the mask, and its sum."""
    counts, sparse = {}, []
    for p, name in ((2.0, "2"), (4 / 3, "4/3")):
        with jax.enable_x64(True):
            mask = np.asarray(jax.jit(lambda x, p=p: topk_mask(x, _K, lam=_LAM, p=p))(_normal()))
        nonzero = (mask != 0).sum(axis=1)
        counts[f"p = {name}"] = float(nonzero.mean())
        sparse.append(bool(np.allclose(mask.sum(axis=1), _K)) and nonzero.max() < _N / 2)
    most = f"{max(counts.values()):.0f} of {_N:,} entries are not 0"
    return Finding(
        f"With k = {_K} and lam = {_LAM}, {most} on average: the others are exactly 0.",
        Verdict(in_every_case(sparse), f"{most}, k = {_K}"),
        None,
        _HERE,
        f"entries of {_N:,} that are not 0, on average over {_ROWS} normal rows",
        {name: f"{count:.4g}" for name, count in counts.items()},
    )


def smoothness(_: Path) -> Finding:
    """Jumps of the derivative of the mask for p = 4/3, where an entry leaves 0 and where it reaches 1."""
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
    at_0, at_1 = map(float, np.abs(after - before))
    return Finding(
        f"The derivative jumps by {at_0:.2f} where an entry leaves 0, and by {at_1:.2f} where it reaches 1, in the "
        "masks of (s, 1, 1), k = 1, and (s, 0, 0), k = 2, at lam = 1.",
        Verdict(in_every_case(jump < 1e-2 for jump in (at_0, at_1)), f"gradient jumps by {max(at_0, at_1):.2f}"),
        None,
        _COUNTEREXAMPLE,
        "jump of the derivative",
        {"where an entry leaves 0": f"{at_0:.4g}", "where it reaches 1": f"{at_1:.4g}"},
    )


def error_bound(_: Path) -> Finding:
    """The error of the relaxed top-k in magnitude over its bound, for p = 2 and lam so small that nothing is pooled."""
    lam = 1e-4
    with jax.enable_x64(True):
        x = _normal()
        error = jnp.abs(topk_mag(x, _K, lam=lam) - hard_topk_mag(x, _K)).max(-1)
        ratio = float((error / (lam * jnp.abs(x).max(-1))).max())
    return Finding(
        f"The largest error is {ratio:.4f} times the bound that the paper gives, for p = 2 and lam = {lam:g}.",
        Verdict(in_every_case([ratio <= 1]), f"{ratio:.4f} of the bound at most"),
        None,
        _HERE,
        "largest error, over its bound",
        {f"lam = {lam:g}": f"{ratio:.4g}"},
    )


def loss_is_bounded(_: Path) -> Finding:
    """How the top-3 loss changes when all logits are shifted: a Fenchel-Young loss is never negative."""
    with jax.enable_x64(True):
        logits, target = _normal()[0, :10], jnp.zeros(10).at[0].set(1.0)
        losses = {
            kind: [
                float(topk_fenchel_young_loss(logits - shift, target, k=3, lam=1.0, target=kind)) for shift in (0, 100)
            ]
            for kind in ("one_hot", "smooth")
        }
    change = {kind: after - before for kind, (before, after) in losses.items()}
    shown = {kind: f"{round(value, 9) + 0.0:g}" for kind, value in change.items()}
    papers, smooth = (
        Verdict(in_every_case([losses[kind][1] >= 0]), f"shifted logits change it by {shown[kind]}") for kind in losses
    )
    return Finding(
        f"When all logits fall by 100, the loss with the paper's one-hot target changes by {shown['one_hot']}, without "
        f"end, and with a target inside the polytope by {shown['smooth']}.",
        papers,
        smooth,
        _COUNTEREXAMPLE,
        "change of the loss when all logits fall by 100",
        {"the paper's target": shown["one_hot"], "smooth target": shown["smooth"]},
    )


def _normal() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(_ROWS, _N)))
