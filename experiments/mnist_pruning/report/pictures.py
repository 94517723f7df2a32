"""Pictures of the first layer: which pixels its units are left with, and how lam decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np
from etils import epy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.report.results import Run
from experiments.mnist_pruning.methods import METHODS
from experiments.mnist_pruning.report import naming

with epy.lazy_imports():  # --help does without them
    import jax
    import jax.numpy as jnp
    from flax import traverse_util

    from experiments.mnist_pruning import pools as pools_lib

_UNITS = 7  # that are shown, of those with most weights
_LAMS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)


def load(runs: Sequence[Run]) -> dict[str, tuple[Run, Mapping[str, Any]]]:
    """The runs that were made for pictures and have left parameters, with those trained, by kind."""
    found = {}
    for run in runs:
        if naming.part(run) == "pictures" and (arrays := run.params()):
            params = traverse_util.unflatten_dict(dict(arrays), sep="/")
            found[naming.kind(run)] = (run, params.get("trained", params))  # earlier runs have left nothing else
    return found


def first_layer(run: Run, params: Mapping[str, Any], **fields: Any) -> np.ndarray:
    """The kernel [pixels, units] of the forward pass at the end of training, with other `fields` of the config."""
    config = ml_collections.ConfigDict(run.config)
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    method = METHODS[config.method].make(config, run.summary["steps"])
    pools = pools_lib.Pools(config.budget, [str(layer) for layer in config.prune_layers])
    network = jax.tree.map(jnp.asarray, params["network"])
    states = jax.tree.map(jnp.asarray, params.get("method", {}))
    kept = {
        pool: method.weights(w, states.get(pool, {}), jnp.float32(1.0), None)
        for pool, w in pools.gather(network).items()
    }
    return np.asarray(pools.scatter(kept, network)["1"]["kernel"])


def masks(found: Mapping[str, tuple[Run, Mapping[str, Any]]]) -> Figure:
    """A row for each method: how many units see each pixel, then the weights of the units that see most."""
    figure = Figure(figsize=(1.2 * (_UNITS + 1), 1.35 * len(found) + 0.2), layout="constrained")
    panels = figure.subplots(len(found), _UNITS + 1, squeeze=False)
    for row, (name, (run, params)) in zip(panels, found.items(), strict=True):
        kernel = first_layer(run, params)
        _seen(row[0], kernel)
        row[0].set_title(f"{name}: {100 * np.count_nonzero(kernel) / kernel.size:.1f} %", fontsize=7, loc="left")
        largest = np.abs(kernel).max()
        for axes, unit in zip(row[1:], np.argsort(-np.count_nonzero(kernel, axis=0), kind="stable"), strict=False):
            image = np.where(kernel[:, unit] == 0, np.nan, kernel[:, unit])
            axes.imshow(_square(image), cmap="coolwarm", vmin=-largest, vmax=largest)
            _bare(axes)
    return figure


def lam_falling(run: Run, params: Mapping[str, Any]) -> Figure:
    """How many units see each pixel, of the weights that an annealed run has learned, as lam falls."""
    figure = Figure(figsize=(1.5 * (len(_LAMS) + 1), 1.8), layout="constrained")
    panels = figure.subplots(1, len(_LAMS) + 1)
    settings: list[tuple[str, dict[str, Any]]] = [
        (f"$\\lambda$ = {lam:g}", {"lam__start": lam, "hard_after": 1.0}) for lam in _LAMS
    ]
    settings.append(("hard", {"method": "hard"}))
    for axes, (title, fields) in zip(panels, settings, strict=True):
        kernel = first_layer(run, params, lam__schedule="constant", **fields)
        _seen(axes, kernel)
        axes.set_title(f"{title}: {100 * np.count_nonzero(kernel) / kernel.size:.2g} %", fontsize=8)
    return figure


def _seen(axes: Axes, kernel: np.ndarray) -> None:
    """Black is the pixel that most units see: at low density few see any."""
    units = np.count_nonzero(kernel, axis=1)
    axes.imshow(_square(units), cmap="Greys", vmin=0, vmax=max(units.max(), 1))
    _bare(axes)


def _square(pixels: np.ndarray) -> np.ndarray:
    side = int(np.sqrt(len(pixels)))
    return pixels.reshape(side, side)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
