"""Compiled programs kept on disk: a run that goes on, or another one of the same network, compiles nothing anew.

config.compilation_cache    a directory, or one in a bucket (gs://); "off"; if left out or None,
                            $JAX_COMPILATION_CACHE_DIR, else ~/.cache/sparse-topk/compiled

JAX finds a program by all that it follows from: its operations, JAX's version, flags and the kind of device. What is in
the directory may be removed at any time.
"""

import os

import jax
import ml_collections
from jax.experimental.compilation_cache import compilation_cache

from experiments.core.config import require
from experiments.core.errors import UsageError
from experiments.core.input import cache
from experiments.core.record.files import absolute, is_remote

OFF = "off"
# To read a program takes some milliseconds: those that compile faster are not worth a file.
_LEAST_SECONDS = 0.05


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.compilation_cache`, which may be left out."""
    given = config.get("compilation_cache")
    path = isinstance(given, str) and bool(given) and (is_remote(given) or "://" not in given)
    require(given is None or path, "compilation_cache", given, f"a directory, {OFF!r}, or None for the default")


def use(config: ml_collections.ConfigDict) -> None:
    """Makes JAX keep what it compiles from now on where a valid `config` says.

    Raises:
      UsageError: the directory that is asked for cannot be written.
    """
    given = config.get("compilation_cache")
    if given is None and (told := os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        _set(told)  # which programs it is for, JAX's own variables say
        return
    directory = None if given == OFF else absolute(given or cache.directory() / "compiled", "config.compilation_cache")
    if directory is not None and not is_remote(directory) and not _is_writable(directory):
        if given:
            raise UsageError(f"config.compilation_cache={given}: it cannot be written")
        print(f"programs are compiled anew in each run: {directory} cannot be written", flush=True)
        directory = None
    _set(None if directory is None else str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _is_writable(directory: os.PathLike[str]) -> bool:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _set(directory: str | None) -> None:
    if directory != jax.config.values["jax_compilation_cache_dir"]:
        jax.config.update("jax_compilation_cache_dir", directory)
        compilation_cache.reset_cache()  # JAX opens the first directory for good
