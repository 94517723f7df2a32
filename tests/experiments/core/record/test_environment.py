"""The record of the code and the settings that numbers depend on."""

from experiments.core.record import environment
from experiments.core.record.environment import describe


def test_shipped_commit_is_used_without_git(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "_ROOT", tmp_path)
    assert describe(())["git"] == {"commit": None, "dirty": None}
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / environment.SHIPPED).write_text("0123\n")
    assert describe(())["git"] == {"commit": "0123", "dirty": None}


def test_numeric_settings_are_recorded(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_allow_excess_precision=false")
    settings = describe(())["settings"]
    assert settings["XLA_FLAGS"] == "--xla_allow_excess_precision=false"
    assert settings["jax_enable_x64"] is False
    assert settings["jax_default_prng_impl"] == "threefry2x32"
