import contextlib

import jax
import jax.numpy as jnp
import ml_collections
import pytest
from jax.experimental.compilation_cache import compilation_cache as of_jax

from experiments.core.errors import UsageError
from experiments.core.training import compilation_cache


@pytest.fixture(autouse=True)
def as_before():
    """The settings of JAX, and the cache of the tests, afterwards as before."""
    names = [name for name in jax.config.values if "compilation_cache" in name or "persistent_cache" in name]
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    of_jax.reset_cache()


def _config(**fields):
    return ml_collections.ConfigDict(fields)


@contextlib.contextmanager
def _hits():
    """Counts programs that are read, and not compiled."""
    counted = []
    jax.monitoring.register_event_listener(count := lambda event, **_: counted.append(event))
    try:
        yield lambda: counted.count("/jax/compilation_cache/cache_hits")
    finally:
        jax.monitoring.unregister_event_listener(count)


def _compile(factor):
    jax.clear_caches()
    return jax.jit(lambda x: jnp.sin(factor * x).sum()).lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile()


def test_a_program_is_compiled_once_and_then_read(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "_LEAST_SECONDS", 0.0)
    compilation_cache.use(_config(compilation_cache=str(tmp_path / "new" / "here")))
    with _hits() as hits:
        _compile(1.25)
        assert hits() == 0
        _compile(1.25)
        assert hits() == 1
    assert any((tmp_path / "new" / "here").iterdir())


def test_off_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "_LEAST_SECONDS", 0.0)
    compilation_cache.use(_config(compilation_cache=str(tmp_path)))
    compilation_cache.use(_config(compilation_cache="off"))
    _compile(1.5)
    assert not any(tmp_path.iterdir())


def test_left_out_it_is_the_users_cache_unless_jax_is_told_of_another(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "another"))
    compilation_cache.use(_config(compilation_cache="off"))
    compilation_cache.use(_config())
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "another")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    compilation_cache.use(_config(compilation_cache=None))
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "sparse-topk" / "compiled")


def test_a_directory_that_cannot_be_written_is_said_to_be(tmp_path, monkeypatch, capsys):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match=r"compilation_cache=.*cannot be written"):
        compilation_cache.use(_config(compilation_cache=str(file / "below")))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    compilation_cache.use(_config())
    assert jax.config.jax_compilation_cache_dir is None
    assert "compiled anew in each run" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", 3, "s3://bucket/programs"])
def test_what_is_no_directory_is_refused(value):
    with pytest.raises(UsageError, match=r"config\.compilation_cache=.* a directory, 'off', or None"):
        compilation_cache.validate(_config(compilation_cache=value))
