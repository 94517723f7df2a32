"""The record of the code and the settings that numbers depend on."""

from experiments.core.record import environment
from experiments.core.record.environment import describe


def test_a_commit_that_cannot_be_told_is_none_unless_it_was_shipped(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "_ROOT", tmp_path)
    assert describe(())["git"] == {"commit": None, "dirty": None}
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / environment.SHIPPED).write_text("0123\n")
    assert describe(())["git"] == {"commit": "0123", "dirty": None}


def test_settings_that_change_numbers_are_recorded(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_allow_excess_precision=false")
    settings = describe(())["settings"]
    assert settings["XLA_FLAGS"] == "--xla_allow_excess_precision=false"
    assert settings["jax_enable_x64"] is False
    assert settings["jax_default_prng_impl"] == "threefry2x32"
