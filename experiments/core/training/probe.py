"""What an experiment finds in a network with a few fixed examples (`Experiment.probe`), and how it changes.

Findings are boolean arrays by name, with a leading axis of seeds on the host. A stretch keeps those of the row that it
begins with, and so do checkpoints: a run that goes on compares what it would have compared.
"""

import base64
import math
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from experiments.core.training.experiment import Experiment, Metrics, Params

Found = dict[str, np.ndarray]  # bool [S, ...]


class Prober:
    """Applies the probe of an experiment, if it has one."""

    def __init__(self, experiment: Experiment, everywhere: NamedSharding, *, seed_axis: bool):
        """`everywhere` is where findings are to lie; `seed_axis` says whether parameters have one."""
        self._seed_axis = seed_axis
        self._find: Any = None
        if experiment.probe:
            find = experiment.probe.find
            over_seeds = jax.vmap(find, in_axes=(0, None)) if seed_axis else find
            self._find = jax.jit(over_seeds, out_shardings=everywhere)
            self._compare = jax.jit(jax.vmap(experiment.probe.compare), out_shardings=everywhere)

    def __call__(self, params: Params, progress: float) -> Found:
        """What is found in a network; empty where there is nothing to find."""
        if self._find is None:
            return {}
        found = jax.device_get(self._find(params, np.float32(progress)))
        return found if self._seed_axis else {name: array[None] for name, array in found.items()}

    def compare(self, before: Found, now: Found) -> Metrics:
        """Metrics [S] of two findings; NaN where there are none before."""
        if not now:
            return {}
        metrics = jax.device_get(self._compare(before or now, now))
        return metrics if before else jax.tree.map(lambda values: np.full_like(values, np.nan), metrics)


def to_json(found: Found) -> dict[str, Any]:
    """Findings, eight values a byte."""
    return {
        name: {"shape": array.shape, "bits": base64.b64encode(np.packbits(array).tobytes()).decode()}
        for name, array in found.items()
    }


def from_json(saved: dict[str, Any]) -> Found:
    """The findings that `to_json` was given."""
    found = {}
    for name, entry in saved.items():
        packed = np.frombuffer(base64.b64decode(entry["bits"]), np.uint8)
        found[name] = np.unpackbits(packed, count=math.prod(entry["shape"])).astype(bool).reshape(entry["shape"])
    return found
