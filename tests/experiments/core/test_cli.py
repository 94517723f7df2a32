"""The command line, as a subprocess: mistakes are one line on stderr, and leave nothing behind."""

import os
import sys

import pytest

from tests.experiments.support import command, start

MISTAKES = {
    "misspelt inner field": (["--config.lam.strt=3"], ["--config.lam.strt", "start"]),
    "ill-typed field": (["--config.epochs=many"], ["config.epochs", "many"]),
    "unknown method": (["--config.method=magic"], ["config.method='magic'", "relaxed"]),
    "missing data set": (
        ["--config.dataset=kmnist", "--noconfig.download", "--config.data_dir=/nowhere"],
        ["kmnist", "/nowhere", "tfds build"],
    ),
    "unknown flag": (["--speed=11"], ["speed"]),
}


def assert_one_line(process, parts):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert all(part in err for part in parts), err


def test_mistakes_are_one_line_and_leave_no_workdir(tmp_path):
    started = [(start(command(tmp_path / "w", *options)), parts) for options, parts in MISTAKES.values()]
    for process, parts in started:
        assert_one_line(process, parts)
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--workdir=w"], ["--config is required"]),
        (["--config=configs/mnist_pruning.py"], ["--workdir is required"]),
        (["--config=nowhere.py", "--workdir=w"], ["nowhere.py", "no such file"]),
        (["--config=configs/mnist_pruning.py:magic", "--workdir=w"], ["'magic'", "relaxed"]),
    ],
)
def test_config_and_workdir_are_required_and_checked(arguments, parts):
    assert_one_line(start([sys.executable, "-m", "experiments.mnist_pruning", *arguments]), parts)


def test_a_workdir_of_another_config_is_refused_with_the_fields_that_differ(small_run):
    process = start(command(small_run.workdir, *small_run.options, "--config.density=0.2"))
    assert_one_line(process, ["another config: config.density (saved 0.1, asked 0.2)\n"])


def test_a_finished_run_says_so(small_run):
    process = start(command(small_run.workdir, *small_run.options))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "is done" in out


def test_a_check_says_whether_a_run_could_be_and_leaves_nothing(tmp_path, small_run):
    process = start(command(tmp_path / "w", "--config.density=0.2", "--check"))
    assert process.communicate(timeout=120) == ("the config can be run\n", "")
    assert process.returncode == 0
    assert not (tmp_path / "w").exists()
    eight = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    several = start(command(tmp_path / "w", "--config.batch_size=9", "--check", "--check_processes=2"), env=eight)
    assert_one_line(several, ["config.batch_size=9 ", "devices of config.mesh"])
    another = start(command(small_run.workdir, *small_run.options, "--config.density=0.2", "--check"))
    assert_one_line(another, ["another config: config.density (saved 0.1, asked 0.2)\n"])
