"""The commands of README, the first hour and the how-tos, as a reader gives them: each does what its page says.

They run below a temporary folder, on runs whose numbers are made up. Training is cut to an epoch, launching is dry.
"""

import importlib
import json
import re
import shlex
import subprocess

import pytest

from experiments.core import cli
from experiments.core.suite.plan import find
from experiments.core.training import train
from experiments.mnist_pruning.experiment import RECIPE
from scripts import archive
from scripts.compare.__main__ import main as compare
from scripts.launch import command as launch
from tests.docs.pages import DOCS, ROOT
from tests.scripts.workdirs import rows_of_pruning, write_run

PAGES = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    DOCS / "first_hour.md",
    *(DOCS / "how_to").glob("*.md"),
    ROOT / "scripts/launch/README.md",
]
FIRST_HOUR = (DOCS / "first_hour.md").read_text()
TARGETS = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
pytestmark = pytest.mark.usefixtures("signals_count")
FAR = ("queued-resource", "tpu-vm")


def commands(text):
    """The commands of a page that are this repository's, each as words."""
    blocks = re.findall(r"^```(?:console)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"`(make [^`]*)`", text) + "\n".join(blocks).replace("\\\n", "").splitlines()
    for line in lines:
        if found := re.match(r"(?:\$ )?((?:make|(?:\.venv/bin/)?python -m) [^#]*)", line):
            yield tuple(shlex.split(found[1].strip()))


LOCAL = [re.sub(r" gs://[^\s\"']+", "", path.read_text()) for path in PAGES]  # runs to compare that are in no bucket
COMMANDS = sorted({words for text in LOCAL for words in commands(text) if "PLATFORM" not in words})
(TRAINING,) = (words for words in commands(FIRST_HOUR) if "--config.p=1.5" in words)


@pytest.fixture(scope="module")
def hour(tmp_path_factory):
    """A folder in the state after the first hour."""
    folder = tmp_path_factory.mktemp("hour")
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "results").mkdir()
    (folder / "results" / "mnist_pruning").symlink_to(ROOT / "results" / "mnist_pruning")
    suite = find("experiments.mnist_pruning.suite")
    configs = {f"demo/mnist_pruning/{run.name}": suite.config(run, folder) for run in suite.presets["demo"]()}
    configs["mine"] = cli.parse(RECIPE, TRAINING[3:])[1]
    configs["vmoe"] = configs["mine"]  # what the last command of launching copies
    for name, config in configs.items():
        write_run(folder / "runs" / name, config, rows_of_pruning(config), "mnist_pruning")
    return folder


def do(words):
    """Does what a command of this repository does, training and launching aside; its exit status."""
    if words[0] == "make":
        assert words[1] in TARGETS
        if words[1] != "compare" and words[1] != "launch":
            return 0
        made = ["make", "--dry-run", "--silent", *words[1:], "BIN=.venv/bin", "READY=", "DATA="]
        done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True)
        words = shlex.split(done.stdout.replace("\\\n", ""))
    module, *arguments = words[2:]
    if module == "scripts.launch":
        return launch.main([*arguments[:2], "--dry_run", *["--commit=HEAD"] * (arguments[0] in FAR), *arguments[2:]])
    if module.startswith("scripts."):
        return {"scripts.compare": compare, "scripts.archive": archive.main}[module](arguments)
    recipe = importlib.import_module(f"{module}.experiment").RECIPE
    if arguments == ["--help"]:
        return cli.run(recipe, arguments)
    config = cli.parse(recipe, arguments)[1]
    train.check_fields(recipe, config)
    return 0


@pytest.mark.parametrize("words", COMMANDS, ids=shlex.join)
def test_a_command_of_the_pages_runs(hour, monkeypatch, words):
    monkeypatch.chdir(hour)
    assert do(list(words)) == 0


def test_first_hour_run_trains_as_shown(hour, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(hour)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = ["--config.epochs=1", "--config.hidden=()", "--config.prune_layers=(1,)", f"--workdir={tmp_path / 'mine'}"]
    small += ["--config.p=2.0"]  # whose mask takes less long to compile
    given = [*TRAINING[3:], *small]
    assert cli.run(RECIPE, given) == 0
    listed = re.search(r"^\$ ls runs/mine\n(.*)$", FIRST_HOUR, re.MULTILINE)[1].split()
    assert sorted(path.name for path in (tmp_path / "mine").iterdir() if path.name[0] != ".") == listed
    last = re.search(r"^epoch 30/30 .*$", FIRST_HOUR, re.MULTILINE)[0]
    printed = re.search(r"^epoch 1/1 .*$", capsys.readouterr().out, re.MULTILINE)[0]
    assert re.findall("[a-z]+_[a-z]+", printed) == re.findall("[a-z]+_[a-z]+", last)


def test_first_hour_table_matches_command(hour, monkeypatch, capsys):
    monkeypatch.chdir(hour)
    (words,) = (words for words in commands(FIRST_HOUR) if "--format=text" in words)
    do(list(words))

    def shape(text):
        return re.sub(r"[+-]?\d+\.\d\d", "N", text).split()

    assert shape(capsys.readouterr().out) == shape(re.search(r"^mnist_pruning: .*?(?=```)", FIRST_HOUR, re.M | re.S)[0])
    own, other = (
        json.loads((hour / "runs" / name / "config.json").read_text())
        for name in ("mine", words[4].removeprefix("runs/"))
    )
    read = {name for name in own if own[name] != other[name]} - {"checkpoint_every", "hard_concrete"}
    assert read == {"p"}


def test_own_run_page_shows_other_runs(hour, monkeypatch, tmp_path):
    monkeypatch.chdir(hour)
    assert compare(["results/mnist_pruning", "runs/mine", f"--out={tmp_path}"]) == 0
    data = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', (tmp_path / "index.html").read_text(), re.S
    )
    assert len(json.loads(data[1])["shown"]) > 1
