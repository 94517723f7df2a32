"""The ways to prune: how the weights used in the forward pass come from those that are learned.

A kernel of size n is pruned as one vector, of which `k = int(density * n)` entries are kept.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.core.config import require, require_one_of
from experiments.core.training.schedules import lam_schedule, validate_lam
from experiments.mnist_pruning import masks
from experiments.mnist_pruning.schedules import cubic_density, linear_density
from ops.baselines.coding import soft_threshold
from ops.baselines.gates import hard_concrete

State = dict[str, jax.Array]  # what a method learns for one layer besides the kernel; often empty


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to prune, as functions of one layer.

    Attributes:
      weights: `weights(kernel, state, progress, key) -> kernel` of the forward pass in training;
        with `key=None` its deterministic form, for evaluation.
      init: `init(kernel) -> state`.
      penalty: `penalty(state, progress) -> scalar`, added to the loss.
      project: `project(kernel, progress) -> kernel`, applied after each update.
      optimizers: of the entries of the state, by name.
    """

    weights: Callable[[jax.Array, State, jax.Array, jax.Array | None], jax.Array]
    init: Callable[[jax.Array], State] = lambda kernel: {}
    penalty: Callable[[State, jax.Array], jax.Array | float] = lambda state, progress: 0.0
    project: Callable[[jax.Array, jax.Array], jax.Array] = lambda kernel, progress: kernel
    optimizers: dict[str, optax.GradientTransformation] = dataclasses.field(default_factory=dict)


def num_kept(density: float, size: int) -> int:
    """`k`, rounded down; the tolerance keeps 0.29 * 100 from being 28."""
    return int(density * size + 1e-9)


def _dense(config: ml_collections.ConfigDict) -> Method:
    """No pruning."""
    del config
    return Method(weights=lambda kernel, state, progress, key: kernel)


def on_vector(function: Callable[[jax.Array, int, jax.Array], jax.Array], density: float) -> Method:
    """The method whose weights are `function(vector, k, progress)`, with nothing else to learn."""

    def weights(kernel: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del state, key
        k = num_kept(density, kernel.size)
        return function(kernel.ravel(), k, progress).reshape(kernel.shape)

    return Method(weights)


def _hard(config: ml_collections.ConfigDict) -> Method:
    """Hard top-k in magnitude; only the entries kept have a gradient."""
    return on_vector(lambda w, k, progress: ops.hard_topk_mag(w, k), config.density)


def _relaxed_mag(config: ml_collections.ConfigDict) -> Callable[..., jax.Array]:
    lam = lam_schedule(config.lam)
    return lambda w, k, progress: ops.topk_mag(w, k, lam=lam(progress), p=config.p, debias=config.debias)


def _relaxed(config: ml_collections.ConfigDict) -> Method:
    """The paper's operator, forward and backward."""
    return on_vector(_relaxed_mag(config), config.density)


def _straight_through(config: ml_collections.ConfigDict) -> Method:
    """Hard top-k forward, the gradient of the paper's operator backward."""
    relaxed = _relaxed_mag(config)
    return on_vector(
        lambda w, k, progress: ops.straight_through(ops.hard_topk_mag(w, k), relaxed(w, k, progress)),
        config.density,
    )


def _behind_hard(mask: masks.Mask, density: float) -> Method:
    """Hard top-k forward, the gradient of `w * mask(|w|)` backward, where `mask` is relaxed."""

    def weights(kernel: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del state, progress
        w, k = kernel.ravel(), num_kept(density, kernel.size)
        hard = ops.hard_topk_mag(w, k)
        # Without a key it is evaluated and not differentiated: the mask, whose value nothing depends on, is left out.
        kept = hard if key is None else ops.straight_through(hard, w * mask(jnp.abs(w), k, key))
        return kept.reshape(kernel.shape)

    return Method(weights)


def _ot_straight_through(config: ml_collections.ConfigDict) -> Method:
    """Hard top-k forward, the gradient of entropic optimal transport (Cuturi et al. 2019) backward."""
    return _behind_hard(masks.make("entropic_ot", config.ot.epsilon), config.density)


def _mask_straight_through(config: ml_collections.ConfigDict) -> Method:
    """Hard top-k forward, the gradient of the relaxed mask that `config.mask` names backward."""
    fields = config.mask
    return _behind_hard(masks.make(fields.name, fields.strength, fields.num_samples), config.density)


def _hard_concrete(config: ml_collections.ConfigDict) -> Method:
    """L0 gates (Louizos et al. 2018) whose expected density a multiplier drives to the target.

    The penalty of a layer is an augmented Lagrangian, `mu excess + damping / 2 excess^2`, with the
    excess of its expected density over a target that falls from 1 to `density` (a gate once shut
    hardly opens again, so the target must not be undershot). The loss descends in weights and
    gates and ascends in `mu`. The gates learn by Adam, as in their paper: by SGD, each one's share
    of the layer's density, 1 / n, would move it imperceptibly. The training density reported is
    the fraction of deterministic gates that are not 0.
    """
    fields = config.hard_concrete
    target = cubic_density(config.density)

    def init(kernel: jax.Array) -> State:
        # 2 opens a gate with probability 0.97.
        return {"log_alpha": jnp.full_like(kernel, 2.0), "multiplier": jnp.zeros((), kernel.dtype)}

    def weights(kernel: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del progress
        log_alpha = state["log_alpha"]
        if key is None:
            return kernel * hard_concrete.deterministic_gates(log_alpha)
        return kernel * hard_concrete.sample_gates(key, log_alpha)

    def penalty(state: State, progress: jax.Array) -> jax.Array:
        expected_density = hard_concrete.probability_open(state["log_alpha"]).mean()
        excess = expected_density - target(progress)
        return state["multiplier"] * excess + fields.damping / 2 * jnp.square(excess)

    return Method(
        weights,
        init=init,
        penalty=penalty,
        optimizers={
            "log_alpha": optax.adam(fields.learning_rate),
            "multiplier": optax.scale(fields.multiplier_rate),  # positive: ascent
        },
    )


def _ista(config: ml_collections.ConfigDict) -> Method:
    """Iterative soft thresholding: a gradient step, then the proximal step of an L1 penalty.

    The threshold of each step and layer is the one that leaves the number of entries asked for,
    which falls linearly from all of them to `k`. A penalty that is given, or steered by the
    density, ends near the density wanted at best: with batches of 128 the noise of the gradient
    lifts or drops a tenth of the entries at once.
    """
    density = linear_density(config.density)

    def project(kernel: jax.Array, progress: jax.Array) -> jax.Array:
        k = jnp.maximum(density(progress) * kernel.size, num_kept(config.density, kernel.size))
        return soft_threshold.soft_threshold_topk(kernel.ravel(), k).reshape(kernel.shape)

    return Method(weights=lambda kernel, state, progress, key: kernel, project=project)


METHODS: dict[str, Callable[[ml_collections.ConfigDict], Method]] = {
    "dense": _dense,
    "hard": _hard,
    "relaxed": _relaxed,
    "straight_through": _straight_through,
    "ot_straight_through": _ot_straight_through,
    "mask_straight_through": _mask_straight_through,
    "hard_concrete": _hard_concrete,
    "ista": _ista,
}


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields of all methods, whichever is used."""
    require_one_of("method", config.method, METHODS)
    require(0 < config.density <= 1, "density", config.density, "in (0, 1]")
    require(1 < config.p <= 2, "p", config.p, "in (1, 2]")
    validate_lam(config.lam)
    require(config.ot.epsilon > 0, "ot.epsilon", config.ot.epsilon, "positive")
    require_one_of("mask.name", config.mask.name, masks.MASKS)
    for field in ("strength", "num_samples"):
        require(config.mask[field] > 0, f"mask.{field}", config.mask[field], "positive")
    if config.method in ("ot_straight_through", "mask_straight_through"):
        require(config.density < 1, "density", config.density, f"in (0, 1) for {config.method}")
    for field, value in config.hard_concrete.items():
        require(value > 0, f"hard_concrete.{field}", value, "positive")


def make(config: ml_collections.ConfigDict) -> Method:
    """The method that `config.method` names."""
    return METHODS[config.method](config)
