"""Strict JAX, eight CPU devices, and deterministic hypothesis, for every test."""

import hypothesis
import jax
import pytest

# Before the first use of a device, hence at import.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile("deterministic", derandomize=True, max_examples=25, deadline=None, database=None)
hypothesis.settings.load_profile("deterministic")


@pytest.fixture
def x64():
    """Double precision within one test."""
    with jax.enable_x64(True):
        yield
