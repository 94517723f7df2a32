"""Arguments arrive byte for byte, through the shells of every platform; the shell that there is, is sound."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.launch import slurm, tpu
from scripts.launch.code import ROOT, Code
from scripts.launch.process import Console
from scripts.launch.training import Training

CODE = Code("0" * 40)
SHOW = '#!/usr/bin/env bash\nprintf \'%s\\0\' "$@" > "$HOME/shown"\n'
ASCII = [chr(code) for code in range(32, 127)]
PRINTABLE = [
    *ASCII,
    "".join(ASCII),
    "",
    "é €",
    "'\"'",
    "\\n\\",
    "a  b ",
    "$(a) `b` ${HOME} $$ $1",
    "!! * ~ ? [a] {b,c}",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with the unpacked code, whose programs write their arguments to a file, each with a NUL after it."""
    home = tmp_path_factory.mktemp("home")
    for directory in (home / CODE.directory, home):
        for name in ("python", "srun"):
            program = directory / ".venv" / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(SHOW)
            program.chmod(0o755)
    scripts = home / CODE.directory / "scripts" / "launch"
    scripts.mkdir(parents=True)
    (scripts / "worker.sh").symlink_to(ROOT / "scripts" / "launch" / "worker.sh")
    return home


def training():
    overrides = tuple(f"--config.a={override}" for override in PRINTABLE)
    return Training("", "mnist_pruning", "configs/mnist_pruning.py", "gs://bucket/a b", overrides, ("NAME=$x y",))


def platform_of(kind):
    """A platform that knows its code alone."""
    platform = kind.__new__(kind)
    platform._code = CODE
    return platform


def arrived(command, home, path=""):
    """The arguments of the program that a command runs in the end."""
    environment = os.environ | {"PATH": path + os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(command, cwd=home, capture_output=True, check=True, env=environment)
    assert done.stderr == b""
    return [argument.decode() for argument in (home / "shown").read_bytes().split(b"\0")[:-1]]


def test_through_ssh_to_a_worker(home):
    run = training()
    found = arrived(["bash", "-c", platform_of(tpu.Tpu).on_worker(run.command(".venv/bin/python"))], home)
    assert found == run.command(".venv/bin/python")[3:]


def test_through_the_batch_script(home):
    run = training()
    options = SimpleNamespace(gpus_per_node=8, nodes=2, sbatch_flag=[])
    command = slurm.Slurm(options, Console()).command(run)
    script = command.index(str(slurm._SCRIPT))
    found = arrived(["bash", *command[script:]], home, path=f"{home}/.venv/bin:")
    assert found == ["--label", "--kill-on-bad-exit=1", *command[script + 1 :]]


def test_shell_scripts_are_sound():
    scripts = [str(path) for path in (ROOT / "scripts").rglob("*.sh")]
    assert len(scripts) >= 2
    shellcheck = [str(Path(sys.executable).with_name("shellcheck")), "--enable=all", "--exclude=SC2312,SC2250"]
    done = subprocess.run([*shellcheck, *scripts], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
