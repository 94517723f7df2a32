"""What the rows of a run in steps say of its speed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiments.core.record import hardware
from experiments.core.training.experiment import Batch, Experiment, Params
from experiments.core.training.stretch import Stretch


def count_flops(experiment: Experiment, params: Params, batch: Batch) -> float | None:
    """Operations per example in the gradient of the loss, as traced: loops count as one round.

    `params` and `batch` are arrays of one seed, or their shapes. Counted before compilation, where
    every matrix product is still one; what is compiled may hide them in calls of libraries.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    progress = jax.ShapeDtypeStruct((), jnp.float32)
    lowered = jax.jit(jax.grad(experiment.loss, has_aux=True)).lower(params, batch, key, progress)
    flops = (lowered.cost_analysis() or {}).get("flops")
    return flops / jax.tree.leaves(batch)[0].shape[0] if flops else None


@dataclasses.dataclass(frozen=True)
class Performance:
    """Turns the times of a stretch into what a row says."""

    images_per_step: int  # of all seeds
    flops_per_step: float | None
    peak_flops: float | None  # of all devices together
    device_kind: str

    @property
    def why_no_mfu(self) -> str | None:
        """The reason why `mfu` is null in every row, if it is."""
        if self.peak_flops is None:
            return f"the peak FLOPs of {self.device_kind!r} are not known"
        return None if self.flops_per_step else "the FLOPs of a step are not known"

    @staticmethod
    def of(experiment: Experiment, mesh: Mesh, params: Params, batch: Batch, num_seeds: int) -> "Performance":
        """For `params` and `batch` of one seed, or their shapes."""
        size = jax.tree.leaves(batch)[0].shape[0] * num_seeds
        device = mesh.devices.flat[0]
        peak = hardware.peak_flops(device)
        flops = experiment.flops_per_example
        if flops is None and peak is not None:
            flops = count_flops(experiment, params, batch)
        return Performance(size, flops and flops * size, peak and peak * mesh.size, device.device_kind)

    def row(self, stretch: Stretch) -> dict[str, Any]:
        """`null` stands for what was not measured, or what the hardware does not tell.

        step_seconds: median over the calls of the stretch.
        images_per_second: over the whole stretch, all seeds together.
        mfu: model FLOPs utilisation at the median step time, against dense bfloat16; null where
          environment.json has no `peak_flops` of the devices.
        peak_memory_bytes: on the device, of this process, that has most.
        """
        times = stretch.step_seconds
        step_seconds = float(np.median(times)) if times else None
        rate = self.images_per_step / float(np.mean(times)) if times else None
        mfu = None
        if step_seconds and self.flops_per_step and self.peak_flops:
            mfu = self.flops_per_step / step_seconds / self.peak_flops
        return {
            "step_seconds": _rounded(step_seconds),
            "images_per_second": _rounded(rate),
            "mfu": _rounded(mfu),
            "peak_memory_bytes": hardware.memory_in_use(),
        }


def _rounded(value: float | None) -> float | None:
    """To four digits."""
    return None if value is None else float(f"{value:.4g}")
