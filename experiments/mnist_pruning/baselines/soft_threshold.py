"""STR: soft threshold weight reparameterization (Kusupati et al. 2020)."""

from __future__ import annotations

import ml_collections
from etils import epy

from experiments.core.config import require
from experiments.core.report.markdown import number
from experiments.core.report.style import PURPLE
from experiments.mnist_pruning.method import Config, Method, State, baseline, in_name

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp

    from experiments.core.training import optimizer


def make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """`sign(w) relu(|w| - sigmoid(s))`, where the threshold's `s` learns with the weights, by the same optimizer.

    Weight decay of weights and `s` makes them sparse: it pulls `s`, which starts far below 0, up. There is one `s` for
    each budget: for each matrix as in the paper, or for the whole network as its global variant has it. The density is
    what comes of `str.weight_decay`; no number is asked for.
    """
    fields = config.str

    def init(w: jax.Array, key: jax.Array) -> State:
        del key
        return {"s": jnp.full((), fields.initial, w.dtype)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del progress, key
        return jnp.sign(w) * jax.nn.relu(jnp.abs(w) - jax.nn.sigmoid(state["s"]))

    def penalty(w: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        del progress
        return fields.weight_decay / 2 * (jnp.sum(jnp.square(w)) + jnp.square(state["s"]))

    return Method(weights, init=init, penalty=penalty, optimizers={"s": optimizer.make(config, total_steps)})


def _setting(config: Config) -> list[str]:
    return [f"weight decay {number(config['str']['weight_decay'])}", f"s from {config['str']['initial']:g}"]


def _validate(config: ml_collections.ConfigDict) -> None:
    require(config.str.weight_decay >= 0, "str.weight_decay", config.str.weight_decay, "at least 0")


STR = baseline(
    "str",
    make,
    "soft threshold reparameterization",
    (PURPLE, "-."),
    {f"decay{in_name(decay)}": {"str.weight_decay": decay} for decay in (3e-4, 1e-3)},
    legend="STR",
    setting=_setting,
    validate=_validate,
    reads=("str",),
    cost=0.8,
)
