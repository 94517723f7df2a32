"""Strict JAX, eight CPU devices, deterministic hypothesis, and one cache of compiled code, for every test."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

# Nearly all the suite's time is compilation. So code is generated quickly rather than well, and its processes (those
# of pytest-xdist, the command lines under test) share a cache of it as long as the session. `XLA_FLAGS= make test` runs
# everything as users do, and `tests/ops/test_optimized.py` the operators' central tests, always. JAX reads these
# variables when imported, and child processes inherit them.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1",
)
if "PYTEST_XDIST_WORKER" not in os.environ and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="tests-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import hypothesis
import jax
import pytest

# Before the first use of a device, hence at import.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile("deterministic", derandomize=True, max_examples=25, deadline=None, database=None)
hypothesis.settings.load_profile("deterministic")


# Of the 65,530 that a process of Linux may have by default. It takes some 4 GB by then.
MOST_MAPPINGS = 12_000

# What programs are traced to is garbage in cycles, and more of it than Python expects of 700 new objects.
gc.set_threshold(100_000, 50, 1000)


@pytest.fixture
def x64():
    """Double precision within one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def signals_count():
    """None is ignored, as SIGINT is by what a shell starts in the background, and SIGHUP by what nohup does."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="module")
def _release_executables():
    """Frees what was compiled before the pages of thousands of executables exhaust the mappings a process may have.

    Not after each module: the next ones use many of the same small programs.
    """
    yield
    try:
        mappings = Path("/proc/self/maps").read_bytes().count(b"\n")
    except FileNotFoundError:  # not Linux
        mappings = MOST_MAPPINGS
    if mappings >= MOST_MAPPINGS:
        jax.clear_caches()
