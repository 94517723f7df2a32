"""Accelerators that JAX sees: whether there are any, their speed and their memory."""

import os

import jax
import ml_collections

from experiments.core.errors import UsageError, first_line
from experiments.core.record import chips


def require_accelerator(config: ml_collections.ConfigDict, needed_by: str, data: str, instead: str) -> None:
    """Refuses a config with `accelerator` set where JAX sees CPUs alone, on which it would take months.

    The `UsageError` says what needs it, which `data` it needs besides, and which command to run `instead` anywhere.
    """
    if config.accelerator and jax.default_backend() == "cpu":
        raise UsageError(
            f"config.accelerator=True, but JAX sees CPUs only: {needed_by} needs GPUs or TPUs (`make ... JAX=cuda13` "
            f"or `JAX=tpu`), and {data}. `{instead}` runs anywhere; --config.accelerator=False starts all the same"
        )


def require_devices() -> None:
    """Raises `UsageError` where JAX cannot use a platform that is asked for, or found, or is to compile nothing."""
    if jax.config.jax_disable_jit:
        raise UsageError(
            "JAX_DISABLE_JIT=1 is not allowed: steps must be compiled; JAX_DEBUG_NANS=1 ends at the first NaN"
        )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter where JAX leaves out what it has no plugin for
        reason = first_line(error) if str(error) else "there is no such device here, or no plugin of JAX for it"
        raise UsageError(f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: {reason}") from error


def peak_flops(device: jax.Device) -> float | None:
    """Operations per second at best, if the device is a known one."""
    chip = chips.of_kind(device.device_kind)
    return chip.flops if chip else None


def memory_in_use() -> int | None:
    """Bytes allocated at most at one time on any device of this process, where the backend tells."""
    statistics = [device.memory_stats() for device in jax.local_devices()]
    peaks = [entry["peak_bytes_in_use"] for entry in statistics if entry and "peak_bytes_in_use" in entry]
    return max(peaks, default=None)
