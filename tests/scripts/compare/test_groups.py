"""Which runs are one group, what groups are called, which are shown first, and where runs are found."""

import json

import fsspec

from experiments.core.record.workdir import Workdir
from scripts.compare.groups import group, shown_first
from scripts.compare.workdirs import find
from tests.scripts.workdirs import write_fine_tuning, write_workdir

START, END = [90.0, 88.0], [7.0, 8.0]


def groups_of(*places):
    return group(find([str(place) for place in places]))


def environment(path, experiment, **fields):
    Workdir(path).environment.write_text(json.dumps({"experiment": experiment, "resumed": []} | fields))


def test_runs_of_other_seeds_are_one_group(tmp_path):
    write_fine_tuning(tmp_path / "a0", {1: [20.0]}, seeds=(0,))
    write_fine_tuning(tmp_path / "a1", {1: [22.0]}, seeds=(1,), mesh__fsdp=4)
    write_fine_tuning(tmp_path / "b", {1: [21.0, 23.0]}, optimizer__learning_rate=0.5)
    a, b = groups_of(tmp_path)
    assert [run.name for run in a.runs] == ["a0", "a1"]
    assert a.seeds == [0, 1]
    assert a.final("test_accuracy/1") == [20.0, 22.0]
    assert "learning rate 5e-3" in a.label
    assert "learning rate 0.5" in b.label


def test_runs_of_other_data_are_told_apart(tmp_path):
    data = {"a": "mnist/3.0.1 aa", "a, too": "mnist/3.0.1 aa", "b": "mnist/3.0.1 bb", "hard": "mnist/3.0.1 aa"}
    for seed, (name, fingerprint) in enumerate(data.items()):
        write_workdir(
            tmp_path / name,
            [START, END],
            seeds=(2 * seed, 2 * seed + 1),
            method="hard" if name == "hard" else "relaxed",
        )
        environment(tmp_path / name, "mnist_pruning", data=fingerprint)
    found = {one.runs[0].name: one for one in groups_of(tmp_path)}
    assert [run.name for run in found["a"].runs] == ["a", "a, too"]
    assert all(found[name].label.endswith(data[name]) for name in ("a", "b"))
    assert (found["a"].baseline.name, found["b"].baseline) == ("hard", None)


def test_own_runs_come_first_then_nearest(tmp_path, monkeypatch):
    committed = {
        "baseline": {"method": "hard"},
        "other density and method": {"method": "hard", "density": 0.2},
        "one field": {"lam__start": 0.1},
        "two fields": {"lam__start": 0.1, "density": 0.2},
    }
    for name, fields in committed.items():
        write_workdir(tmp_path / "results" / name, [START, END], **{"lam__end": 1e-5} | fields)
    monkeypatch.setattr("scripts.compare.workdirs.RESULTS", tmp_path / "results")
    write_workdir(tmp_path / "mine", [START, END], lam__end=1e-5)
    found = groups_of(tmp_path / "mine", tmp_path / "results")
    assert [one.own for one in found] == [True, False, False, False, False]
    names = [one.runs[0].name.rpartition("/")[2] for one in shown_first(found)]
    assert names == ["mine", "baseline", "one field"]
    assert found[0].baseline is next(one.runs[0] for one in found if one.runs[0].name.endswith("baseline"))


def test_nearest_is_shown_if_none_is_close(tmp_path, monkeypatch):
    for name, density in (("nearer", 0.1), ("farther", 0.2)):
        write_workdir(tmp_path / "results" / name, [START, END], density=density)
    monkeypatch.setattr("scripts.compare.workdirs.RESULTS", tmp_path / "results")
    write_workdir(tmp_path / "mine", [START, END], dataset="digits", batch_size=32)
    found = groups_of(tmp_path / "mine", tmp_path / "results")
    assert [one.runs[0].name.rpartition("/")[2] for one in shown_first(found)] == ["mine", "nearer"]


def test_unknown_experiment_is_still_shown(tmp_path):
    for name, rate in (("a", 0.1), ("b", 0.2)):
        write_workdir(tmp_path / name, [START, END], optimizer__learning_rate=rate)
        environment(tmp_path / name, "another")
    found = groups_of(tmp_path)
    assert [one.label for one in found] == ["a, learning rate 0.1", "b, learning rate 0.2"]
    assert shown_first(found) == found
    assert [one.baseline for one in found] == [None, None]


def test_unfinished_runs_are_not_pooled(tmp_path):
    write_workdir(tmp_path / "done", [START, END])
    write_workdir(tmp_path / "stopped", [START, END], seeds=(2, 3))
    Workdir(tmp_path / "stopped").summary.unlink()
    done, stopped = groups_of(tmp_path)
    assert (done.state, stopped.state) == ("done", "unfinished, at epoch 1 of 1")
    assert stopped.label.endswith("(unfinished, at epoch 1 of 1)")


def test_places_are_told_apart_and_read_once(tmp_path, monkeypatch):
    for name in ("a/run", "b/run"):
        write_workdir(tmp_path / name, [START, END], method="hard" if name < "b" else "dense")
    found = find([str(tmp_path / "a"), str(tmp_path / "b"), f"{tmp_path}/a/"])
    assert [run.name for run in found.runs] == [f"{tmp_path}/a/run", f"{tmp_path}/b/run"]
    monkeypatch.chdir(tmp_path / "a" / "run")
    assert find(["."]).runs[0].name == "run"


def test_bucket_runs_are_copied_and_read(tmp_path, capsys):
    write_workdir(tmp_path / "run", [START, END])
    (tmp_path / "run" / "params.npz").write_bytes(b"large")
    memory = fsspec.filesystem("memory")
    try:
        memory.put(str(tmp_path), "/bucket/runs", recursive=True)
        found = find(["memory://bucket/runs"])
        assert [run.name for run in found.runs] == ["run"]
        assert found.problems == []
        assert [run.name for run in find(["memory://bucket/runs/run/"]).runs] == ["run"]
        assert "copying 4 files" in capsys.readouterr().err
        assert [problem.reason for problem in find(["memory://bucket/none"]).problems] == ["holds no run"]
    finally:
        memory.store.clear()
    (problem,) = find(["nosuch://bucket"]).problems
    assert problem.reason.startswith("cannot be read: ")
