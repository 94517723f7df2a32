"""Compiled programs are kept for the user, or where JAX is told."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from experiments.core.training import train


@pytest.fixture(autouse=True)
def as_before():
    """The settings of JAX are afterwards as before."""
    names = [name for name in jax.config.values if "compilation_cache" in name or "persistent_cache" in name]
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_cache_defaults_to_user_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "another"))
    train.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == before
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    train.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "sparse-topk" / "compiled")
