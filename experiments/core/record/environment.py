"""The code, packages and machine of a run: enough to know, years later, what its numbers and seconds mean."""

import importlib.metadata
import multiprocessing
import os
import platform
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
SHIPPED = "COMMIT"  # a file in the root
_PACKAGES: tuple[str, ...] = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tensorflow-datasets", "grain")
_PACKAGES += ("pillow", "ml-collections", "numpy")
# Options of JAX, and variables of XLA and below if set, that change numbers beside the code and the config.
_OPTIONS = ("jax_default_matmul_precision", "jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable")
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "JAX_NUMPY_DTYPE_PROMOTION")


def describe(command: Sequence[str]) -> dict[str, Any]:
    """A JSON record of code, packages, machine and the command line; what cannot be found out is null."""
    import jax  # what launches runs, or looks at them, need not wait for it

    from experiments.core.record import hardware

    devices = jax.devices()
    # Results are written while other runs go on; they do not make the code another.
    status = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    commit = _git("rev-parse", "--verify", "HEAD") or shipped()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "git": {"commit": commit, "dirty": None if status is None else bool(status)},
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "settings": {name: getattr(jax.config, name) for name in _OPTIONS}
        | {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "devices": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "processes": jax.process_count(),
            "peak_flops": hardware.peak_flops(devices[0]),
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpu": _cpu_model(),
            "cores": len(processors()),
        },
    }


def processors() -> list[int]:
    """The numbers of the processors that this process may use; of all, where the system does not tell which."""
    return sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def when_the_parent_ends(act: Callable[[], None]) -> None:
    """Does something, in a thread, once the process that started this one by `multiprocessing` has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        act()

    threading.Thread(target=watch, daemon=True).start()


def _git(*arguments: str) -> str | None:
    """Returns git's answer about this code; None if there is no git, or no commit."""
    command = ["git", "-C", str(_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def shipped() -> str | None:
    """The commit that this code is of, where `scripts.launch` has unpacked it: there, it has no history."""
    path = _ROOT / SHIPPED
    return path.read_text().strip() if path.exists() else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    path = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*: (.*)", path.read_text(), re.MULTILINE) if path.exists() else None
    return match[1] if match else platform.processor() or None
