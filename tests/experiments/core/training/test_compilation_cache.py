"""Compiled programs are kept where the config says, or not at all."""

import jax
import jax.numpy as jnp
import ml_collections
import pytest
from jax.experimental.compilation_cache import compilation_cache as of_jax

from experiments.core.training import train


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Keeps programs however quickly they compile; the settings of JAX are afterwards as before."""
    monkeypatch.setattr(train, "_LEAST_SECONDS", 0.0)
    names = [name for name in jax.config.values if "compilation_cache" in name or "persistent_cache" in name]
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    of_jax.reset_cache()


def use(directory):
    train.use_compilation_cache(ml_collections.ConfigDict({"compilation_cache": directory}))


def hits(factor):
    """Compiles a program; how many were read instead."""
    counted = []
    jax.monitoring.register_event_listener(count := lambda event, **_: counted.append(event))
    try:
        jax.jit(lambda x: jnp.sin(factor * x).sum()).lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile()
    finally:
        jax.monitoring.unregister_event_listener(count)
    return counted.count("/jax/compilation_cache/cache_hits")


def test_a_program_is_compiled_once_and_then_read_and_off_keeps_nothing(tmp_path):
    use(str(tmp_path / "new" / "here"))
    assert [hits(1.25), hits(1.25)] == [0, 1]
    kept = list((tmp_path / "new" / "here").iterdir())
    assert kept
    use("off")
    assert hits(1.5) == 0
    assert list((tmp_path / "new" / "here").iterdir()) == kept


def test_left_out_it_is_the_users_cache_unless_jax_is_told_of_another(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "another"))
    use("off")
    use(None)
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "another")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    use(None)
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "sparse-topk" / "compiled")
