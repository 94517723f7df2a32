"""Runs whose files are not as runs leave them: each is shown or named in a line, and the others are shown."""

import hashlib
import json
import re
import shutil

from experiments.core.record.workdir import Workdir
from scripts.compare.__main__ import main
from tests.scripts.workdirs import write_workdir

START, END = [90.0, 88.0], [7.0, 8.0]


def write_pruning(path, **fields):
    write_workdir(path, [START, END], method="mask_straight_through", **fields)


def compared(directory, capsys):
    """What the comparison says in a table and beside it; every line beside it is of a run that it leaves out."""
    assert main([str(directory), "--format=text"]) == 0
    out, err = capsys.readouterr()
    return out, dict(re.findall(r"^left out: ([^:]*): (.*)$", err, re.MULTILINE))


def edited(name, place, value):
    """Replaces a value in a file of a run."""

    def act(run):
        content = json.loads((run / name).read_text())
        node = content
        for part in place[:-1]:
            node = node[part]
        node[place[-1]] = value
        (run / name).write_text(json.dumps(content))

    return act


def with_odd_metric(run):
    """Puts a metric into the rows, with their checksum, that is neither one number nor one a seed."""
    workdir = Workdir(run)
    rows = map(json.loads, workdir.metrics.read_text().splitlines())
    workdir.metrics.write_text("".join(json.dumps(row | {"learning_rate": [0.1, 0.2]}) + "\n" for row in rows))
    edited("summary.json", ("metrics_sha256",), hashlib.sha256(workdir.metrics.read_bytes()).hexdigest())(run)


def replaced(name, content):
    return lambda run: (run / name).write_bytes(content)


# What is done to a run, and what the line on it begins with.
ODD = {
    "method": (edited("config.json", ("method",), "nothing"), "cannot be shown (ValueError: config.method='nothing' "),
    "epochs": (edited("config.json", ("epochs",), 1e999), "config.json is damaged (no JSON: "),
    "none": (edited("config.json", ("method",), None), "cannot be shown ("),
    "seeds": (edited("config.json", ("seeds",), [[1], {"a": 2}]), ""),
    "section": (edited("config.json", ("optimizer",), {"a": {"b": 1}}), "cannot be shown ("),
    "final": (edited("summary.json", ("final", "test_error"), None), "summary.json "),
    "metric": (with_odd_metric, "cannot be shown (ValueError: learning_rate "),
    "garbage": (replaced("config.json", b"\xff\x00{\x1b[2J\n"), ""),
    "empty": (replaced("environment.json", b""), ""),
    "list": (replaced("summary.json", b"[1]\n"), ""),
    "deep": (replaced("metrics.jsonl", b"[" * 10**5 + b"]" * 10**5), ""),
}


def test_broken_runs_are_named_and_left_out(tmp_path, capsys):
    write_pruning(tmp_path / "sound")
    for name, (act, _) in ODD.items():
        act(shutil.copytree(tmp_path / "sound", tmp_path / name))
    out, told = compared(tmp_path, capsys)
    assert any(line.endswith("done") for line in out.splitlines())
    assert told.keys() == ODD.keys()
    for name, reason in told.items():
        assert reason.startswith(ODD[name][1])
        assert "\x1b" not in reason


def test_control_characters_are_escaped(tmp_path, capsys):
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
    # `gs://$BUCKET/runs` with BUCKET unset: `runs` would be taken for the bucket.
    assert main(["gs:///runs", "--format=text"]) == 1
    assert capsys.readouterr().err.startswith("left out: gs:///runs: names no bucket\n")
