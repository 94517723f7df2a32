"""The commands of the documentation's first hour: each is one that this repository understands."""

import importlib
import re
import shlex

import pytest

from experiments.core import cli
from experiments.core.training import train
from tests.docs.pages import DOCS, ROOT

TARGETS = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}


def commands():
    """The commands of the page, less those of the shell and git."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (DOCS / "first_hour.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^\$ (.*)$", "\n".join(blocks).replace("\\\n", ""), re.MULTILINE)
    return [words for words in map(shlex.split, lines) if words[0] not in ("git", "cd", "ls")]


@pytest.mark.parametrize("words", commands(), ids=shlex.join)
def test_a_command_of_the_first_hour_is_understood(words, capsys):
    if words[0] == "make":
        assert words[1] in TARGETS
        return
    assert words[:2] == [".venv/bin/python", "-m"]
    module, *arguments = words[2:]
    if module.startswith("experiments.") and arguments != ["--help"]:
        recipe = importlib.import_module(f"{module}.experiment").RECIPE
        _, config = cli.parse(recipe, arguments)
        train.validate(config)
        recipe.validate(config)
    else:
        assert importlib.util.find_spec(f"{module}.__main__")
