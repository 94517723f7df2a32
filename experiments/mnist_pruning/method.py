"""What a way to prune is: functions of a layer for training, and what suites, tables and figures know of it.

A kernel of size n is pruned as one vector, of which `k = int(density * n)` entries are kept.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import ml_collections
import optax

from experiments.core.report.style import Look

State = dict[str, jax.Array]  # what a method learns for one layer besides the kernel; often empty
Config = Mapping[str, Any]  # of a run, as it reads back from its file
Fields = dict[str, Any]  # of a config, by dotted name


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

    make: Callable[[ml_collections.ConfigDict], Method]
    label: str | Callable[[Config], str]  # in tables
    look: Look | Callable[[Config], Look]  # in figures
    legend: str | Callable[[Config], str] = ""  # in figures; empty: the label
    setting: Callable[[Config], Sequence[str]] = lambda config: ()  # its hyper-parameters, as tables write them
    validate: Callable[[ml_collections.ConfigDict], None] = lambda config: None  # of its own fields, in all runs
    keeps_all: bool = True  # whether the density may be 1
    variants: dict[str, Fields] = dataclasses.field(default_factory=dict)  # of the config, besides that of its own name
    cost: float = 4.0  # seconds per epoch of ten seeds, relative to the other methods
    # Its runs at given settings, by name, all of which the demo makes, and its lines of the full suite. None: one of
    # its own name.
    fixed: Callable[[], dict[str, Fields]] | None = None
    trials: Callable[[], dict[str, Trial]] | None = None


def num_kept(density: float, size: int) -> int:
    """`k`, rounded down; the tolerance keeps 0.29 * 100 from being 28."""
    return int(density * size + 1e-9)


def on_vector(function: Callable[[jax.Array, int, jax.Array], jax.Array], density: float) -> Method:
    """The method whose weights are `function(vector, k, progress)`, with nothing else to learn."""

    def weights(kernel: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del state, key
        k = num_kept(density, kernel.size)
        return function(kernel.ravel(), k, progress).reshape(kernel.shape)

    return Method(weights)


def in_name(value: float) -> str:
    """`1e-3`, `1`, `10`, as names of runs have it."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")
