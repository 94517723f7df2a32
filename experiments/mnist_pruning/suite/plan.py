"""What a suite consists of: named runs, some of which compete, some of which wait for the winner."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_collections

from configs.mnist_pruning import get_config

Fields = Mapping[str, Any]  # of the config, by dotted name


@dataclasses.dataclass(frozen=True)
class Run:
    """One workdir.

    Attributes:
      name: of the workdir, below the directory of the suite.
      base: fields of the config.
      setting: further fields; in a sweep, those that are being chosen.
      candidate_for: the choice for which this run competes, on validation.
      best_of: the choice whose winning setting this run takes.
    """

    name: str
    base: Fields
    setting: Fields = dataclasses.field(default_factory=dict)
    candidate_for: str | None = None
    best_of: str | None = None

    def config(self, setting: Fields | None = None) -> ml_collections.ConfigDict:
        """The config of the run, with `setting` (its own if left out) over its base."""
        config = get_config()
        config.update_from_flattened_dict(dict(self.base) | dict(self.setting if setting is None else setting))
        return config

    def cost(self) -> float:
        """Roughly how long it takes, in a unit of no meaning: to share out the time left."""
        # Seeds train side by side: ten take about three times as long as one.
        return 5.0 + COST.get(self.base["method"], 1.0) * self.base["epochs"] * (3 + len(self.base["seeds"])) / 13


# Seconds per epoch of ten seeds, relative to each other.
COST = {
    "dense": 0.6,
    "hard": 1.6,
    "relaxed": 3.4,
    "straight_through": 4.0,
    "ot_straight_through": 10.0,
    "mask_straight_through": 4.0,
    "hard_concrete": 3.0,
    "ista": 1.6,
}
