"""The command line: which values count, and what it says. Mistakes are in `test_hostile_commands.py`."""

import jax
import pytest

from experiments.core import cli
from experiments.core.errors import in_one_line
from experiments.core.record.workdir import Workdir
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments.support import command


def parsed(*options):
    """The config of a command line."""
    return cli.parse(RECIPE, ["--config=configs/mnist_pruning.py", "--workdir=w", *options])[1]


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        (["--config.seeds=(0,1)", "--config.seeds=(0, 1, 2)"], (0, 1, 2)),
        (["--config.seeds=7,8"], (7, 8)),
        (["--config.seeds=[7]"], (7,)),
        (["--config.seeds=7"], (7,)),
    ],
)
def test_last_override_of_a_field_wins(given, seeds):
    config = parsed(*given, "--config.hidden=(5,)", "--config.hidden=()", "--config.debias")
    assert (config.seeds, config.hidden, config.debias) == (seeds, (), True)


def test_string_fields_take_none_and_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parsed("--config.data_dir=/x", "--config.data_dir=None").data_dir is None
    assert parsed("--config.data_dir=None", "--config.data_dir=~/x").data_dir == str(tmp_path / "x")
    assert parsed("--config.data_dir=a~b").data_dir == "a~b"
    assert Workdir("~/x").path == tmp_path / "x"


def here(arguments):
    """Does what a command line asks for, in this process; the exit status."""
    return in_one_line(lambda: cli.run(RECIPE, arguments[3:]))


def assert_refused(arguments, parts, capsys):
    assert here(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert all(part in err for part in parts), err


def test_workdir_of_other_config_is_refused(small_run, capsys):
    asked = command(small_run.workdir, *small_run.options, "--config.density=0.2")
    assert_refused(asked, ["another config: config.density (saved 0.1, asked 0.2)\n"], capsys)
    longer = command(small_run.workdir, *small_run.options, "--config.epochs=30")
    assert_refused(longer, ["config.epochs (saved 20, asked 30)"], capsys)


@pytest.mark.parametrize("error", [RuntimeError("no cuda\n..."), AssertionError()])
def test_platform_without_devices_is_refused(tmp_path, monkeypatch, capsys, error):
    def devices():
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", devices)
    assert_refused(command(tmp_path / "w"), ["JAX_PLATFORMS=cuda: ", "no"], capsys)
    assert not (tmp_path / "w").exists()


def test_disabled_jit_is_refused(tmp_path, capsys):
    with jax.disable_jit():
        assert_refused(command(tmp_path / "w"), ["JAX_DISABLE_JIT=1"], capsys)
    assert not (tmp_path / "w").exists()


def test_a_finished_run_says_so(small_run, capsys):
    assert here(command(small_run.workdir, *small_run.options)) == 0
    out, err = capsys.readouterr()
    assert (f"{small_run.workdir} is done" in out, err) == (True, "")


def test_show_config_includes_overrides(capsys):
    assert cli.run(RECIPE, ["--config=configs/mnist_pruning.py:annealed", "--config.p=1.5", "--show_config"]) == 0
    assert {"config.p = 1.5", "config.lam.schedule = 'geometric'"} < set(capsys.readouterr().out.splitlines())
