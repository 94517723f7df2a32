"""Relaxed top-k masks of the literature, for the backward pass behind a hard top-k.

To add one: an operator `(x [n], k, *, <strength>) -> mask [n]` of `ops.baselines`, and an entry of MASKS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import ml_collections
from etils import epy

from experiments.core.config import require, require_one_of
from experiments.core.report.markdown import number
from experiments.core.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, Look
from experiments.mnist_pruning.method import Config, Method, PruningMethod, State, Trial, in_name
from experiments.mnist_pruning.schedules import num_kept

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp

    import ops
    from ops import baselines

Mask: TypeAlias = "Callable[[jax.Array, int, jax.Array], jax.Array]"  # (magnitudes [n], k, key) -> mask [n]


@dataclasses.dataclass(frozen=True)
class RelaxedMask:
    """A relaxed mask, as `MASKS` lists it."""

    operator: Callable[[], Callable[..., jax.Array]]  # returns one of `ops.baselines`
    strength: str  # what it calls `config.mask.strength`
    label: str  # in tables and figures: "hard, LABEL gradient"
    look: Look  # in figures
    draws: bool = False  # whether it takes a `key` and `num_samples`
    demo: float | None = None  # the strength at which the demo trains with it; None: it does not


# Dash-dotted in figures: optimal transport has a method of its own, which is not.
MASKS = {
    "entropic_ot": RelaxedMask(lambda: baselines.entropic_ot_topk_mask, "epsilon", "optimal-transport", (BLACK, "-.")),
    "perturbed": RelaxedMask(
        lambda: baselines.perturbed_topk_mask, "sigma", "perturbed-mask", (BLUE, "-."), draws=True
    ),
    "sigmoid": RelaxedMask(lambda: baselines.sigmoid_topk_mask, "temperature", "sigmoid-mask", (GREEN, "-.")),
    "lapsum": RelaxedMask(lambda: baselines.lapsum_topk_mask, "temperature", "LapSum", (ORANGE, "-."), demo=0.1),
    "softsort": RelaxedMask(lambda: baselines.softsort_topk_mask, "temperature", "SoftSort", (PURPLE, "-.")),
    "neuralsort": RelaxedMask(lambda: baselines.neuralsort_topk_mask, "temperature", "NeuralSort", (SKY, "-.")),
}


def mask_of(name: str, strength: float, num_samples: int = 1) -> Mask:
    """The mask called `name` at a strength; `num_samples` are those of one that draws."""
    entry = MASKS[name]
    options, operator = {entry.strength: strength}, entry.operator()
    if entry.draws:
        return lambda x, k, key: operator(x, k, key=key, num_samples=num_samples, **options)
    return lambda x, k, key: operator(x, k, **options)


def _behind_hard(mask: Mask, density: float) -> Method:
    """Hard top-k forward, the gradient of `w * mask(|w|)` backward, where `mask` is relaxed."""

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del state, progress
        k = num_kept(density, w.size)
        hard = ops.hard_topk_mag(w, k)
        # Without a key it is evaluated and not differentiated: the mask, whose value nothing depends on, is left out.
        return hard if key is None else ops.straight_through(hard, w * mask(jnp.abs(w), k, key))

    return Method(weights)


def _label(config: Config) -> str:
    return f"hard, {MASKS[config['mask']['name']].label} gradient"


def _setting(config: Config) -> list[str]:
    fields = config["mask"]
    entry = MASKS[fields["name"]]
    samples = f", {fields['num_samples']} samples" if entry.draws else ""
    return [f"{entry.strength} = {number(fields['strength'])}{samples}"]


def _validate(config: ml_collections.ConfigDict) -> None:
    require_one_of("mask.name", config.mask.name, MASKS)
    for field in ("strength", "num_samples"):
        require(config.mask[field] > 0, f"mask.{field}", config.mask[field], "positive")


# Hard top-k forward, the gradient of the mask that `config.mask` names backward.
MASK_STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: _behind_hard(mask_of(**config.mask), config.density),
    _label,
    lambda config: MASKS[config["mask"]["name"]].look,
    lambda config: ", ".join([_label(config), *_setting(config)]),
    setting=_setting,
    validate=_validate,
    reads=("mask",),
    keeps_all=False,
    fixed=lambda: {
        f"{name}_straight_through": {"mask.name": name, "mask.strength": mask.demo}
        for name, mask in MASKS.items()
        if mask.demo is not None
    },
    trials=dict,  # none
)
# The same of entropic optimal transport (Cuturi et al. 2019). Each step costs many times that of the others, so fewer
# seeds; epsilons below these take many times as long and learn more slowly.
OT_STRAIGHT_THROUGH = PruningMethod(
    lambda config, total_steps: _behind_hard(mask_of("entropic_ot", config.ot.epsilon), config.density),
    "hard, optimal-transport gradient",
    (BLACK, "--"),
    "hard, OT gradient",
    setting=lambda config: [f"epsilon = {number(config['ot']['epsilon'])}"],
    validate=lambda config: require(config.ot.epsilon > 0, "ot.epsilon", config.ot.epsilon, "positive"),
    reads=("ot",),
    keeps_all=False,
    cost=10.0,
    trials=lambda: {
        "ot_straight_through": Trial(
            candidates={f"epsilon{in_name(epsilon)}": {"ot.epsilon": epsilon} for epsilon in (3e-2, 1e-1, 1.0)},
            sweep_seeds=1,
            seeds=5,
        )
    },
)
