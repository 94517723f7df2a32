"""Runs whose files are not as runs leave them: each is shown or named in a line, and the others are shown."""

import copy
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.core.record.workdir import Workdir
from scripts.compare.__main__ import main
from scripts.compare.groups import group
from scripts.compare.workdirs import find
from tests.scripts.workdirs import write_clusters, write_fine_tuning, write_vmoe, write_workdir

START, END = [90.0, 88.0], [7.0, 8.0]
_REMOVED = object()
# `1e999` is infinite when it is read, and the second whole number larger than any float.
_VALUES = (_REMOVED, None, "x", "\ud800", -1, 0.5, [], [[1], {"a": 2}], {}, {"a": {"b": 1}}, float("nan"), 10**400)


def write_pruning(path, **fields):
    write_workdir(path, [START, END], method="mask_straight_through", **fields)


WRITE = {
    "mnist_pruning": write_pruning,
    "cifar100_vit": lambda path, **fields: write_fine_tuning(path, {1: [20.0, 21.0], 5: [40.0, 41.0]}, **fields),
    "vmoe": lambda path, **fields: write_vmoe(path, [[1.0, 2.0], [30.0, 31.0]], "small,router=relaxed", **fields),
    "vmoe_clusters": lambda path, **fields: write_clusters(
        path, "relaxed", [50.0, 51.0], [[0.0, 0.0], [60.0, 61.0]], **fields
    ),
}


def places(tree):
    """Those of all fields and sections, as tuples of names."""
    for name, value in tree.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *place) for place in places(value))


def changed(tree, place, value):
    tree = copy.deepcopy(tree)
    node = tree
    for name in place[:-1]:
        node = node[name]
    if value is _REMOVED:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return tree


def compared(directory, capsys):
    """What the comparison says in a table and beside it; every line beside it is of a run that it leaves out."""
    assert main([str(directory), "--format=text"]) == 0
    out, err = capsys.readouterr()
    return out, dict(re.findall(r"^left out: ([^:]*): (.*)$", err, re.MULTILINE))


@pytest.mark.parametrize("experiment", WRITE)
def test_odd_configs_take_nothing_else_down(tmp_path, capsys, experiment):
    """Whatever field is missing, null, of another kind, or none that a computer has."""
    WRITE[experiment](tmp_path / "sound")
    sound = json.loads((tmp_path / "sound" / "config.json").read_text())
    for number, place in enumerate(places(sound)):
        # Not every value in every place, for the sake of time.
        for value in {number % 3, 3 + number % (len(_VALUES) - 3)}:
            odd = shutil.copytree(tmp_path / "sound", tmp_path / f"{'.'.join(place)} {value}")
            (odd / "config.json").write_text(json.dumps(changed(sound, place, _VALUES[value])))
    found = find([str(tmp_path)])
    shown = {run.name for one in group(found) for run in one.runs}
    left_out = {problem.name for problem in found.problems}
    assert "sound" in shown
    assert shown | left_out == {path.name for path in tmp_path.iterdir()}
    assert 20 < len(left_out) < len(shown) + len(left_out) - 20
    _, told = compared(tmp_path, capsys)
    assert told.keys() == left_out


def edited(name, place, value):
    """Replaces a value in a file of a run."""

    def act(run):
        (run / name).write_text(json.dumps(changed(json.loads((run / name).read_text()), place, value)))

    return act


def with_odd_metric(run):
    """Puts a metric into the rows, with their checksum, that is neither one number nor one a seed."""
    workdir = Workdir(run)
    rows = map(json.loads, workdir.metrics.read_text().splitlines())
    workdir.metrics.write_text("".join(json.dumps(row | {"learning_rate": [0.1, 0.2]}) + "\n" for row in rows))
    edited("summary.json", ("metrics_sha256",), hashlib.sha256(workdir.metrics.read_bytes()).hexdigest())(run)


def replaced(name, kind):
    """Puts something in the place of a file of a run."""
    contents = {"garbage": b"\xff\x00{\x1b[2J\n", "empty": b"", "list": b"[1]\n", "deep": b"[" * 10**5 + b"]" * 10**5}
    special = {"directory": Path.mkdir}

    def act(run):
        (run / name).unlink(missing_ok=True)
        special.get(kind, lambda file: file.write_bytes(contents[kind]))(run / name)

    return act


_FILES = ("config.json", "environment.json", "summary.json", "metrics.jsonl")
_KINDS = ("garbage", "empty", "directory", "list", "deep")
REPLACED = {(name, kind): (i + j) % 3 for i, name in enumerate(_FILES) for j, kind in enumerate(_KINDS)}
# What is done to a run, and what the line on it begins with.
ODD = {
    "method": (edited("config.json", ("method",), "nothing"), "cannot be shown (ValueError: config.method='nothing' "),
    "seeds": (
        edited("config.json", ("seeds",), ["0"]),
        "summary.json does not belong to the last row of metrics.jsonl",
    ),
    "epochs": (edited("config.json", ("epochs",), 1e999), "config.json is damaged (no JSON: "),
    "two seeds": (edited("summary.json", ("seeds",), [1, 2]), "summary.json "),
    "final": (edited("summary.json", ("final", "test_error"), None), "summary.json "),
    "seconds": (edited("summary.json", ("seconds",), float("nan")), "summary.json "),
    "metric": (with_odd_metric, "cannot be shown (ValueError: learning_rate "),
    **{f"{name} {kind}": (replaced(name, kind), "") for (name, kind), chosen in REPLACED.items() if not chosen},
}


def test_files_that_are_none_and_fields_that_cannot_be_are_named_and_a_sound_run_is_shown(tmp_path, capsys):
    write_pruning(tmp_path / "sound")
    for name, (act, _) in ODD.items():
        act(shutil.copytree(tmp_path / "sound", tmp_path / name))
    out, told = compared(tmp_path, capsys)
    assert any(line.endswith("done") for line in out.splitlines())
    assert told.keys() == ODD.keys()
    for name, reason in told.items():
        assert reason.startswith(ODD[name][1])
        assert "\x1b" not in reason


def test_what_a_terminal_would_obey_is_shown_as_an_escape(tmp_path, capsys):
    """Names of runs, experiments, metrics and values."""
    name = "odd\x1b]0;title\x07\r\n\u202e"
    write_workdir(tmp_path / name, [START, END], dataset=name)
    write_workdir(tmp_path / "b", [START, END])
    (tmp_path / f"{name}-2").mkdir()
    (tmp_path / f"{name}-2" / "config.json").write_text("{}")
    Workdir(tmp_path / "b").environment.write_text(json.dumps({"experiment": name, "resumed": []}))
    assert main([str(tmp_path), "--format=text"]) == 0
    out, err = capsys.readouterr()
    escaped = r"odd\x1b]0;title\x07\r\n\u202e"
    assert escaped in out
    assert f"left out: {escaped}-2: " in err
    assert all(character.isprintable() for character in (out + err).replace("\n", ""))
    assert main([str(tmp_path), "--format=text", f"--reference=no{name}"]) == 2
    assert f"error: --reference=no{escaped.replace(chr(92) + 'r' + chr(92) + 'n', ' ')}" in capsys.readouterr().err
    assert main([str(tmp_path / name / "\x1b"), "--format=text"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_a_bucket_without_a_name_is_none(capsys):
    """`gs://$BUCKET/runs` with BUCKET unset: `runs` would be taken for the bucket."""
    assert main(["gs:///runs", "--format=text"]) == 1
    assert capsys.readouterr().err.startswith("left out: gs:///runs: names no bucket\n")
