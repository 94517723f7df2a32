"""What a way to prune is: functions of weights for training, and what suites, tables and figures know of it.

Weights that compete for one budget are a vector of size n (`pools.py`), of which `k = int(density * n)` are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import ml_collections
from etils import epy

from experiments.core.report.style import Look
from experiments.mnist_pruning.schedules import kept

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    import optax

State: TypeAlias = "dict[str, jax.Array]"  # what a method keeps of one vector besides the weights; often empty
Config = Mapping[str, Any]  # of a run, as it reads back from its file
Fields = dict[str, Any]  # of a config, by dotted name


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to prune, as functions of one vector.

    Attributes:
      weights: `weights(vector, state, progress, key) -> vector` of the forward pass in training;
        with `key=None` its deterministic form, for evaluation.
      init: `init(vector, key) -> state`.
      penalty: `penalty(vector, state, progress) -> scalar`, added to the loss.
      after_update: `after_update(vector, state, gradient, progress) -> vector, state`, applied after each update;
        `gradient` is that in the vector.
      active: `active(state) -> mask` of the weights of which the optimizer keeps what it remembers (momentum) after an
        update; of the others it forgets it. None: it remembers all.
      optimizers: of the entries of the state, by name.
    """

    weights: Callable[[jax.Array, State, jax.Array, jax.Array | None], jax.Array]
    init: Callable[[jax.Array, jax.Array], State] = lambda vector, key: {}
    penalty: Callable[[jax.Array, State, jax.Array], jax.Array | float] = lambda vector, state, progress: 0.0
    after_update: Callable[[jax.Array, State, jax.Array, jax.Array], tuple[jax.Array, State]] = (
        lambda vector, state, gradient, progress: (vector, state)
    )
    active: Callable[[State], jax.Array] | None = None
    optimizers: dict[str, optax.GradientTransformation] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A line of the full suite: a run on test with `fields`, and with the best of `candidates` on validation if any."""

    fields: Fields = dataclasses.field(default_factory=dict)
    candidates: dict[str, Fields] = dataclasses.field(default_factory=dict)  # by name
    sweep_seeds: int = 3  # of each candidate; fewer where a step is dear
    seeds: int = 10  # of the run on test


@dataclasses.dataclass(frozen=True)
class PruningMethod:
    """A way to prune, as `METHODS` lists it: all there is to be said of it."""

    make: Callable[[ml_collections.ConfigDict, int], Method]  # of a config and the number of steps
    label: str | Callable[[Config], str]  # in tables
    look: Look | Callable[[Config], Look]  # in figures
    legend: str | Callable[[Config], str] = ""  # in figures; empty: the label
    setting: Callable[[Config], Sequence[str]] = lambda config: ()  # its hyper-parameters, as tables write them
    validate: Callable[[ml_collections.ConfigDict], None] = lambda config: None  # of its own fields, in all runs
    keeps_all: bool = True  # whether the density may be 1
    # Of the fields that not all methods read, those that it does: by name, or a whole section ("lam").
    reads: Sequence[str] = ()
    density_schedules: Sequence[str] = ("constant",)  # those of `config.density_schedule.name` that it can follow
    fields: Fields = dataclasses.field(default_factory=dict)  # of the config, wherever it is used
    variants: dict[str, Fields] = dataclasses.field(default_factory=dict)  # of the config, besides that of its own name
    cost: float = 4.0  # seconds per epoch of ten seeds, relative to the other methods
    # Its runs at given settings, by name, all of which the demo makes, and its lines of the full suite. None: one of
    # its own name.
    fixed: Callable[[], dict[str, Fields]] | None = None
    trials: Callable[[], dict[str, Trial]] | None = None
    # Its lines of the comparison of methods at their best, with two settings to choose from each. None by default.
    best: Callable[[], dict[str, Trial]] = dict


def baseline(
    name: str,
    make: Callable[[ml_collections.ConfigDict, int], Method],
    label: str,
    look: Look,
    candidates: dict[str, Fields],
    **fields: Any,
) -> PruningMethod:
    """A way to prune of the literature, compared where every method is at its best, and not in the paper's setting.

    Args:
      name: of its runs.
      make, label, look: of `PruningMethod`, as are further `fields`.
      candidates: the two settings to choose from, by name.
    """
    best = {name: Trial(candidates=candidates)}
    return PruningMethod(make, label, look, trials=dict, best=lambda: best, **fields)


def by_number(function: Callable[[jax.Array, Any], jax.Array], config: ml_collections.ConfigDict) -> Method:
    """The method whose weights are `function(vector, k)`, with nothing else to learn."""
    return Method(lambda vector, state, progress, key: function(vector, kept(config, vector.size)(progress)))


def by_mask(
    weights: Callable[[jax.Array, jax.Array], jax.Array],
    first: Callable[[jax.Array, jax.Array], jax.Array],
    after_update: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
) -> Method:
    """The method that holds a mask, which does not learn; the optimizer forgets what it remembers of what is masked.

    Args:
      weights: `weights(vector, mask) -> vector` of the forward pass.
      first: `first(vector, key) -> mask` to begin with.
      after_update: `after_update(vector, mask, gradient, progress) -> vector, mask`.
    """

    def follow_up(w: jax.Array, state: State, gradient: jax.Array, progress: jax.Array) -> tuple[jax.Array, State]:
        w, mask = after_update(w, state["mask"], gradient, progress)
        return w, {"mask": mask}

    return Method(
        lambda vector, state, progress, key: weights(vector, state["mask"]),
        init=lambda vector, key: {"mask": first(vector, key)},
        after_update=follow_up,
        active=lambda state: state["mask"],
        optimizers={"mask": optax.set_to_zero()},
    )


def over_rows(method: Method) -> Method:
    """The method for a matrix each of whose rows is pruned as a vector by itself."""

    def weights(rows: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        if key is None:
            return jax.vmap(lambda w, s: method.weights(w, s, progress, None))(rows, state)
        keys = jax.random.split(key, len(rows))
        return jax.vmap(lambda w, s, key: method.weights(w, s, progress, key))(rows, state, keys)

    def penalty(rows: jax.Array, state: State, progress: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(lambda w, s: jnp.asarray(method.penalty(w, s, progress)))(rows, state))

    return dataclasses.replace(
        method,
        weights=weights,
        init=lambda rows, key: jax.vmap(method.init)(rows, jax.random.split(key, len(rows))),
        penalty=penalty,
        after_update=jax.vmap(method.after_update, in_axes=(0, 0, 0, None)),
    )


def in_name(value: float) -> str:
    """`1e-3`, `1`, `10`, as names of runs have it."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")
