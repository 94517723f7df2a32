"""The first hour of the documentation: each of its commands is carried out, on a run and a demo that are tiny."""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from experiments.core import cli
from experiments.core.training import train
from scripts.compare.__main__ import main as compare
from tests.docs.pages import DOCS, ROOT
from tests.scripts.workdirs import write_workdir

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections
TINY = ["--config.epochs=1", "--config.seeds=(0,)", "--config.hidden=()", "--config.prune_layers=(1,)", "--config.p=2"]


def transcript():
    """The commands of the page, and the lines that each of them prints, without those that are left out."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", (DOCS / "first_hour.md").read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            command, _, said = part.partition("\n")
            found.append((shlex.split(command), [line for line in said.splitlines() if line != "..."]))
    return found


@pytest.fixture
def hour(tmp_path, monkeypatch, capsys):
    """Carries out a command of the page in a directory of its own; returns what it printed."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)

    def python(module, arguments):
        if module == "scripts.demo":
            assert arguments == ["--out=runs/demo"]
            for name, method in (("hard", "hard"), ("annealed-p2", "relaxed")):  # of the runs that it leaves
                path = Path("runs/demo/mnist_pruning") / f"final-layers123-{name}"
                write_workdir(path, [[90.0, 88.0], [9.0, 8.0]], method=method, dataset="digits")
        elif module.startswith("experiments."):
            recipe = importlib.import_module(f"{module}.experiment").RECIPE
            if arguments == ["--help"]:
                assert cli.run(recipe, arguments) == 0
                return capsys.readouterr().out
            options, config = cli.parse(recipe, [*arguments, *TINY])
            train.run(recipe, config, options.workdir)
        else:
            assert module == "scripts.compare"
            assert compare(arguments) == 0
        return capsys.readouterr().out

    def carry_out(words):
        match words:
            case ["git", "clone", "URL", name]:
                subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, name], check=True)
            case ["cd", name]:
                assert (tmp_path / name / ".git").is_dir()
            case ["make", *arguments]:
                recipe = ["make", "--dry-run", "--no-print-directory", "READY=", "VENV=.venv", *arguments]
                lines = subprocess.run(recipe, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
                return "".join(carry_out(shlex.split(line)) for line in lines)
            case ["ls", name]:
                return "  ".join(sorted(path.name for path in Path(name).iterdir() if path.name[0] != "."))
            case [".venv/bin/python", "-m", module, *arguments]:
                return python(module, arguments)
            case _:
                pytest.fail(f"{shlex.join(words)} is a command that this test cannot carry out")
        return ""

    return carry_out


def test_every_command_of_the_first_hour_does_what_the_page_says(hour, tmp_path):
    printed = {}
    for words, said in transcript():
        printed[shlex.join(words)] = hour(words), said
    assert (tmp_path / "runs" / "compare" / "index.html").exists()
    for command, (out, said) in printed.items():
        if "--help" in command or command.startswith("ls "):
            assert said
            assert all(line in out for line in said), command
        elif "scripts.compare" in command or command.startswith("make compare"):
            # Other numbers, as runs are tiny; the same columns, and the same words around them.
            heads = [line.split() for line in said if line.startswith(("runs ", "mnist_pruning:"))]
            assert all(head in [line.split() for line in out.splitlines()] for head in heads), command
            assert "3 runs in 3 groups: runs/compare/index.html" in out or heads, command
        elif "experiments.mnist_pruning" in command:
            fields = [re.findall(r"(\w+) +[-\d.]+", line)[1:] for line in said if line.startswith("epoch  0/")]
            assert fields == [
                re.findall(r"(\w+) +[-\d.]+", line)[1:] for line in out.splitlines() if "epoch 0/" in line
            ]
