"""Runs whose files are not as runs leave them: each is shown or named in a line, and the others are shown."""

import copy
import hashlib
import json

import pytest

from experiments.core.record.workdir import Workdir
from scripts.compare.__main__ import main
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


def require_told(directory, capsys, what):
    """The comparison shows the run `sound`, and the run `odd` as well, or it says in a line why not."""
    assert main([str(directory), "--format=text"]) == 0, what
    out, err = capsys.readouterr()
    rows = [line for line in out.splitlines() if line.endswith("done")]
    assert len(rows) + err.count("left out: odd: ") == 2, what
    assert len(rows) >= 1, what
    assert err.count("\n") <= 1, what
    return err


@pytest.mark.parametrize("experiment", WRITE)
def test_one_odd_config_takes_nothing_else_down(tmp_path, capsys, experiment):
    """Whatever field is missing, null, of another kind, or none that a computer has."""
    for name in ("sound", "odd"):
        WRITE[experiment](tmp_path / name, **({"batch_size": 50} if name == "odd" else {}))
    file = tmp_path / "odd" / "config.json"
    sound = json.loads(file.read_text())
    left_out = 0
    for number, place in enumerate(places(sound)):
        # Not every value in every place, for the sake of time.
        for value in {number % 3, 3 + number % (len(_VALUES) - 3)}:
            file.write_text(json.dumps(changed(sound, place, _VALUES[value])))
            what = (place, _VALUES[value])
            left_out += bool(require_told(tmp_path, capsys, what))
    assert left_out > 20


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"method": "nothing"}, "cannot be shown (ValueError: config.method='nothing' is none of dense, "),
        ({"seeds": ["0"]}, "summary.json does not belong to the last row of metrics.jsonl"),
        ({"epochs": 1e999}, "config.json is damaged (no JSON: "),
    ],
)
def test_the_line_names_the_field(tmp_path, capsys, fields, reason):
    for name in ("sound", "odd"):
        write_pruning(tmp_path / name)
    file = tmp_path / "odd" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    assert f"left out: odd: {reason}" in require_told(tmp_path, capsys, fields)


_FILES = ("config.json", "environment.json", "summary.json", "metrics.jsonl")
_KINDS = ("garbage", "empty", "directory", "list", "deep")


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for i, name in enumerate(_FILES) for j, kind in enumerate(_KINDS) if (i + j) % 3 == 0],
)
def test_a_file_that_is_none_is_named(tmp_path, capsys, name, kind):
    for run in ("sound", "odd"):
        write_pruning(tmp_path / run)
    file = tmp_path / "odd" / name
    file.unlink(missing_ok=True)
    if kind == "directory":
        file.mkdir()
    else:
        content = {
            "garbage": b"\xff\x00{\x1b[2J\n",
            "empty": b"",
            "list": b"[1]\n",
            "deep": b"[" * 10**5 + b"]" * 10**5,
        }
        file.write_bytes(content[kind])
    err = require_told(tmp_path, capsys, (name, kind))
    assert "left out: odd: " in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("summary.json", ("seeds",), [1, 2]),
        ("summary.json", ("final", "test_error"), None),
        ("summary.json", ("seconds",), float("nan")),
    ],
)
def test_a_field_that_is_read_of_other_files_is_named(tmp_path, capsys, name, place, value):
    for run in ("sound", "odd"):
        write_pruning(tmp_path / run)
    file = tmp_path / "odd" / name
    file.write_text(json.dumps(changed(json.loads(file.read_text()), place, value)))
    assert f"left out: odd: {name} " in require_told(tmp_path, capsys, place)


def test_a_metric_of_the_run_that_is_none_is_named(tmp_path, capsys):
    for run in ("sound", "odd"):
        write_pruning(tmp_path / run)
    workdir = Workdir(tmp_path / "odd")
    rows = map(json.loads, workdir.metrics.read_text().splitlines())
    workdir.metrics.write_text("".join(json.dumps(row | {"learning_rate": [0.1, 0.2]}) + "\n" for row in rows))
    sha256 = hashlib.sha256(workdir.metrics.read_bytes()).hexdigest()
    workdir.summary.write_text(json.dumps(json.loads(workdir.summary.read_text()) | {"metrics_sha256": sha256}))
    assert "odd: cannot be shown (ValueError: learning_rate " in require_told(tmp_path, capsys, "learning_rate")


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
