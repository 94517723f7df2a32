"""The record of the code and the settings that numbers depend on."""

import subprocess

from experiments.core.record import environment
from experiments.core.record.environment import Launch, describe


def test_a_commit_that_cannot_be_told_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "_ROOT", tmp_path)
    git = describe(Launch())["git"]
    assert (git["commit"], git["dirty"]) == (None, None)
    assert "not a git repository" in git["why"]
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert describe(Launch())["git"]["why"].startswith("fatal: Needed a single revision")  # there is no commit yet
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "No such file or directory: 'git'" in describe(Launch())["git"]["why"]
    (tmp_path / environment.SHIPPED).write_text("0123\n")
    assert describe(Launch())["git"]["commit"] == "0123"


def test_settings_that_change_numbers_are_recorded(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_allow_excess_precision=false")
    settings = describe(Launch())["settings"]
    assert settings["XLA_FLAGS"] == "--xla_allow_excess_precision=false"
    assert settings["jax_enable_x64"] is False
    assert settings["jax_default_prng_impl"] == "threefry2x32"
