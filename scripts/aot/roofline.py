"""The least time that a program can take, from what it holds and the makers' rates: computed, not measured."""

import dataclasses
from typing import Any

from scripts.aot.hardware import Device


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Seconds of a call, if each of the three had the device to itself and ran at its published rate.

    Attributes:
      compute: of matrix products.
      memory: of the bytes that kernels read and write.
      interconnect: of the bytes that a device sends.
    """

    compute: float
    memory: float
    interconnect: float

    @property
    def least(self) -> float:
        """With everything at the same time: no run is faster."""
        return max(self.compute, self.memory, self.interconnect)

    @property
    def bound(self) -> str:
        """Which of the three that is."""
        return max(("compute", "memory", "interconnect"), key=lambda name: getattr(self, name))

    def utilisation(self, operations: float, device: Device) -> float:
        """Of the device's operations, those that the model needs: at most so much."""
        return operations / (self.least * device.flops) if self.least else 0.0

    def record(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "label": "computed from published rates, not measured",
            "compute_seconds": self.compute,
            "memory_seconds": self.memory,
            "interconnect_seconds": self.interconnect,
            "least_seconds": self.least,
            "bound": self.bound,
        }


def of(device: Device, operations: float, moved: float, sent: float) -> Roofline:
    """Of what one device does in a call: bfloat16 operations, bytes moved from and to its memory, bytes sent."""
    return Roofline(operations / device.flops, moved / device.memory_bandwidth, sent / device.interconnect)
