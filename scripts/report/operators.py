"""Findings on the operators, which need no results: they are computed here, in float64."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.core.report.finding import Finding, Measured, Verdict
from ops import hard_topk_mag, topk_fenchel_young_loss, topk_mag, topk_mask

_ROWS, _N, _K, _LAM = 20, 1000, 100, 0.1


def sparsity(_: Path) -> Finding:
    """Exact zeros of the mask, and its sum."""
    parts, counts, sparse = [], [], True
    for p, name in ((2.0, "2"), (4 / 3, "4/3")):
        with jax.enable_x64(True):
            mask = np.asarray(jax.jit(lambda x, p=p: topk_mask(x, _K, lam=_LAM, p=p))(_normal()))
        nonzero = (mask != 0).sum(axis=1)
        parts.append(f"p = {name}: {nonzero.min()} to {nonzero.max()} entries of {_N:,} are not 0")
        counts.append(Measured(f"p = {name}", float(nonzero.mean())))
        sparse &= bool(np.allclose(mask.sum(axis=1), _K)) and nonzero.max() < _N / 2
    ours = "; ".join(parts) + f" (k = {_K}, lam = {_LAM}, {_ROWS} normal rows)"
    return Finding(
        ours,
        "reproduced" if sparse else "not",
        f"every mask sums to {_K}",
        plain=f"{'Most' if sparse else 'Not most'} entries of the relaxed mask are exactly 0.",
        unit=f"entries of {_N:,} that are not 0, on average",
        measured=counts,
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
    at_0, at_1 = np.abs(after - before)
    ours = f"jump of the derivative of an entry where it leaves 0: {at_0:.2f}; where it reaches 1: {at_1:.2f}"
    smooth = [jump < 1e-2 for jump in (at_0, at_1)]
    why = "(s, 0, 0), k = 2, and (s, 1, 1), k = 1, at lam = 1, p = 4/3: no jump is asked for"
    jumps = ["does not jump" if still else "jumps" for still in smooth]
    return Finding(
        ours,
        "reproduced" if all(smooth) else "partly" if any(smooth) else "not",
        why,
        plain=f"The derivative {jumps[0]} where an entry leaves 0, and {jumps[1]} where it reaches 1.",
        unit="jump of the derivative",
        measured=[Measured("where an entry leaves 0", float(at_0)), Measured("where it reaches 1", float(at_1))],
    )


def error_bound(_: Path) -> Finding:
    """The error of the relaxed top-k in magnitude over its bound."""
    lam = 1e-4
    with jax.enable_x64(True):
        x = _normal()
        error = jnp.abs(topk_mag(x, _K, lam=lam) - hard_topk_mag(x, _K)).max(-1)
        ratio = float((error / (lam * jnp.abs(x).max(-1))).max())
    ours = f"largest error over lam max|x|: {ratio:.6f} (lam = {lam:g}, {_ROWS} normal rows of {_N:,})"
    return Finding(
        ours,
        "reproduced" if ratio <= 1 else "not",
        "for p = 2 and lam so small that nothing is pooled",
        plain=f"The error {'stays within' if ratio <= 1 else 'exceeds'} the bound that the paper gives.",
        unit="largest error, over its bound",
        measured=[Measured(f"lam = {lam:g}", ratio)],
    )


def loss_is_bounded(_: Path) -> Finding:
    """How the top-3 loss changes when all logits are shifted: a Fenchel-Young loss is never negative."""
    losses = {}
    with jax.enable_x64(True):
        logits, target = _normal()[0, :10], jnp.zeros(10).at[0].set(1.0)
        for kind in ("one_hot", "smooth"):
            shifted = [
                float(topk_fenchel_young_loss(logits - shift, target, k=3, lam=1.0, target=kind))
                for shift in (0.0, 100.0)
            ]
            losses[kind] = shifted
    ours = "loss before and after all logits fall by 100: " + "; ".join(
        f"{name} {before:.3g}, {after:.3g}"
        for name, (before, after) in (("the paper's target", losses["one_hot"]), ("smooth target", losses["smooth"]))
    )
    verdict: Verdict = "reproduced"
    why, plain = "never negative", "The loss is never negative, as a Fenchel-Young loss is."
    if losses["one_hot"][1] < 0:
        bounded = losses["smooth"][1] >= 0
        verdict, why = "partly" if bounded else "not", "unbounded below with a one-hot target for k > 1"
        plain = "With the paper's target the loss falls without end as all logits fall"
        why += "; a target inside the polytope avoids that" if bounded else ""
        plain += "; with a target inside the polytope it does not." if bounded else "."
    return Finding(
        ours,
        verdict,
        why,
        plain=plain,
        unit="change of the loss when all logits fall by 100",
        measured=[
            Measured(name, after - before)
            for name, (before, after) in (
                ("the paper's target", losses["one_hot"]),
                ("smooth target", losses["smooth"]),
            )
        ],
    )


def _normal() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(_ROWS, _N)))
