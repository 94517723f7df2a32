"""Arguments arrive byte for byte, through the shells of every platform; the shell that there is, is sound."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
from hypothesis import strategies as st

from experiments.core.errors import UsageError
from scripts.launch import gke, slurm, tpu
from scripts.launch.code import ROOT, Code
from scripts.launch.process import Console, Failed
from scripts.launch.training import Training, check_overrides

CODE = Code("0" * 40)
SHOW = "#!/usr/bin/env bash\nprintf '%s\\0' \"$@\"\n"
# Whatever an argument of a program may be; the metacharacters of shells more often than the rest.
ARGUMENTS = st.lists(
    st.text(
        st.sampled_from("'\"\\$`(){}[]<>|&;*?!#~ \t\n,=%aé") | st.characters(codec="utf-8", exclude_characters="\0")
    ),
    max_size=4,
)
LINES = ARGUMENTS.filter(lambda arguments: all(argument.isprintable() for argument in arguments))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the unpacked code, whose programs print their arguments, each with a NUL after it."""
    home = tmp_path_factory.mktemp("home")
    for directory in (home / CODE.directory, home):
        for name in ("python", "srun"):
            program = directory / ".venv" / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(SHOW)
            program.chmod(0o755)
    return home


def training(overrides):
    overrides = tuple(f"--config.a={override}" for override in overrides)
    return Training("", "mnist_pruning", "configs/mnist_pruning.py", "gs://bucket/a b", overrides, ("NAME=$x y",))


def arrived(command, home, path=""):
    done = subprocess.run(
        command, cwd=home, capture_output=True, check=True, env=os.environ | {"PATH": path + os.environ["PATH"]}
    )
    assert done.stderr == b""
    return [argument.decode() for argument in done.stdout.split(b"\0")[:-1]]


@hypothesis.given(overrides=ARGUMENTS)
def test_through_ssh_to_a_worker(home, overrides):
    run = training(overrides)
    found = arrived(["bash", "-c", tpu.remote_command(CODE.directory, run)], home)
    assert found == ["-m", "scripts.launch.worker", "--", *run.command(".venv/bin/python")]


@hypothesis.given(overrides=LINES)
def test_through_a_manifest_to_the_shell_of_a_container(home, overrides):
    run = training(overrides)
    platform = gke.Gke.__new__(gke.Gke)
    platform._code, platform._options = CODE, SimpleNamespace(prepare=None)
    # As Kubernetes expands it, where no variable is set; the first command is not the one looked at.
    command = platform.command(run).replace("$$", "$").replace("bash ./scripts", "true ./scripts")
    assert arrived(["bash", "-c", f"({command})"], home) == run.command(".venv/bin/python")[3:]


def test_a_line_break_is_refused_where_a_manifest_cannot_hold_it():
    platform = gke.Gke.__new__(gke.Gke)
    platform._code, platform._options = CODE, SimpleNamespace(prepare=None)
    with pytest.raises(Failed, match="line break") as raised:  # of this run alone
        platform.command(training(["a\nb"]))
    assert (raised.value.status, raised.value.again) == (2, False)


@hypothesis.given(overrides=ARGUMENTS)
def test_through_the_batch_script(home, overrides):
    run = training(overrides)
    options = SimpleNamespace(gpus_per_node=8, nodes=2, time=None, sbatch_flag=[])
    command = slurm.Slurm(options, Console())._command(run, home / "slurm.log")
    script = command.index(str(slurm._SCRIPT))
    found = arrived(["bash", *command[script:]], home, path=f"{home}/.venv/bin:")
    assert found == ["--label", "--kill-on-bad-exit=1", *command[script + 1 :]]


@hypothesis.given(overrides=ARGUMENTS)
def test_as_printed_by_a_dry_run(home, overrides):
    run = training(overrides)
    lines = []
    console = Console(dry_run=True)
    console.say = lines.append
    console.ask(["printf", "%s\\0", *run.command()])
    assert arrived(["bash", "-c", lines[0]], home) == run.command()


def test_overrides_that_are_none_are_refused():
    assert check_overrides(["config.p=2", "--config.q=(0, 1)"]) == ("--config.p=2", "--config.q=(0, 1)")
    for wrong in (["1)"], ["--workdir=/a"], ["--config=b"]):
        with pytest.raises(UsageError, match="override"):
            check_overrides(wrong)


def test_shell_scripts_are_sound():
    scripts = [str(path) for path in (ROOT / "scripts").rglob("*.sh")]
    assert len(scripts) >= 2
    shellcheck = [str(Path(sys.executable).with_name("shellcheck")), "--enable=all", "--exclude=SC2312,SC2250"]
    done = subprocess.run([*shellcheck, *scripts], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
