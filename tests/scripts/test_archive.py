"""Archives hold all that workdirs do, are read in their place, and are refused where a run is unfinished or damaged."""

import dataclasses
import errno
import shutil

import numpy as np
import pytest

from experiments.core.record.files import write_compressed
from experiments.core.record.workdir import Workdir
from experiments.core.report import results
from scripts import archive
from tests.scripts.workdirs import write_workdir

ERRORS = [[90.0, 88.0], [7.0, 8.0]]


def comparable(run):
    return dataclasses.asdict(dataclasses.replace(run, params=None, examples={}))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that has kept its parameters, and two in another directory."""
    directory = tmp_path_factory.mktemp("runs")
    write_workdir(directory / "a", ERRORS)
    write_compressed(Workdir(directory / "a").params, {"layer/kernel": np.arange(6.0, dtype=np.float32).reshape(2, 3)})
    write_workdir(directory / "sweep" / "b", ERRORS, seeds=(3, 4))
    write_workdir(directory / "sweep" / "c", ERRORS)
    return directory


def test_archive_reads_like_the_workdirs(runs, tmp_path):
    assert archive.main([str(runs), f"--out={tmp_path}"]) == 0
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")) == [
        "arrays.npz",
        "runs.jsonl",
        "sweep/runs.jsonl",
    ]
    (before, _), (after, problems) = results.load(runs), results.load(tmp_path)
    assert problems == []
    assert [run.name for run in after] == ["a", "sweep/b", "sweep/c"]
    assert list(map(comparable, after)) == list(map(comparable, before))
    params = after[0].params()
    assert params
    for name, array in before[0].params().items():
        np.testing.assert_array_equal(params[name], array)
    again = tmp_path / "again"
    assert archive.main([str(tmp_path), f"--out={again}"]) == 0
    assert (again / "runs.jsonl").read_bytes() == (tmp_path / "runs.jsonl").read_bytes()
    assert (again / "arrays.npz").read_bytes() == (tmp_path / "arrays.npz").read_bytes()


def test_single_run_is_archived_by_name(runs, tmp_path, capsys):
    assert archive.main([str(runs / "a"), f"--out={tmp_path}"]) == 0
    (before, *_), (after, problems) = results.load(runs)[0], results.load(tmp_path)
    assert (list(map(comparable, after)), problems) == ([comparable(before)], [])
    assert archive.main([str(runs / "a")]) == 2
    assert "--out" in capsys.readouterr().err
    assert not (runs / "a" / archive.archive.RUNS).exists()


def test_archived_runs_become_workdirs_again(runs, tmp_path):
    archive.main([str(runs), f"--out={tmp_path / 'archive'}"])
    back = [str(tmp_path / "archive"), "--restore", f"--out={tmp_path / 'runs'}"]
    assert archive.main(back) == 0
    for name in ("a", "sweep/b", "sweep/c"):
        assert Workdir(tmp_path / "runs" / name).is_done()
        for file in ("config.json", "metrics.jsonl", "summary.json"):
            assert (tmp_path / "runs" / name / file).read_bytes() == (runs / name / file).read_bytes()
    params = results.load(tmp_path / "runs")[0][0].params()
    np.testing.assert_array_equal(params["layer/kernel"], np.arange(6.0).reshape(2, 3))
    (tmp_path / "runs" / "a" / "config.json").write_text("{}\n")  # what is there is left alone
    assert archive.main(back) == 0
    assert (tmp_path / "runs" / "a" / "config.json").read_text() == "{}\n"


def test_archived_workdirs_are_read_once(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "a", tmp_path / "a")
    write_workdir(tmp_path / "a" / "lone", ERRORS)
    (tmp_path / "a" / "lone" / ".lock").touch()
    (tmp_path / "a" / "notes.txt").write_text("mine")
    write_workdir(tmp_path / "a" / "inner", ERRORS)
    before, _ = results.load(tmp_path)
    assert archive.main([str(tmp_path)]) == 0
    assert [run.name for run in results.load(tmp_path)[0]] == ["a", "a/inner", "a/lone"]
    monkeypatch.chdir(tmp_path.parent)
    assert archive.main([tmp_path.name, "--remove"]) == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["notes.txt", "runs.jsonl"]
    assert not (tmp_path / "a" / "lone").exists()
    assert list(map(comparable, results.load(tmp_path)[0])) == list(map(comparable, before))


def test_archive_of_other_runs_is_kept(runs, tmp_path, capsys):
    archive.main([str(runs / "sweep" / "b"), f"--out={tmp_path}"])
    before = (tmp_path / "runs.jsonl").read_bytes()
    assert archive.main([str(runs / "sweep" / "c"), f"--out={tmp_path}"]) == 2
    assert "has other runs, such as b" in capsys.readouterr().err
    assert (tmp_path / "runs.jsonl").read_bytes() == before


def test_workdir_changed_since_is_a_problem(runs, tmp_path):
    shutil.copytree(runs / "a", tmp_path / "a")
    archive.main([str(tmp_path)])
    (tmp_path / "a" / ".lock").touch()
    assert results.load(tmp_path)[1] == []
    shutil.rmtree(tmp_path / "a")
    write_workdir(tmp_path / "a", [[90.0, 88.0], [1.0, 2.0]])
    (problem,) = results.load(tmp_path)[1]
    assert (problem.name, "another run" in problem.reason) == ("a", True)
    assert archive.main([str(tmp_path), "--remove"]) == 2
    assert (tmp_path / "a" / "summary.json").exists()


def test_interrupted_restoring_goes_on(runs, tmp_path, monkeypatch):
    archive.main([str(runs / "sweep"), f"--out={tmp_path / 'archive'}"])
    back = [str(tmp_path / "archive"), "--restore", f"--out={tmp_path / 'runs'}"]
    write = archive.write_json
    for full in ("environment.json", "summary.json", "config.json"):

        def write_until(path, value, full=full):
            if path.name == full:
                raise OSError(errno.ENOSPC, "full")
            write(path, value)

        monkeypatch.setattr(archive, "write_json", write_until)
        assert archive.main(back) == 1
    monkeypatch.undo()
    assert archive.main(back) == 0
    restored, expected = (results.load(place)[0] for place in (tmp_path / "runs", runs / "sweep"))
    assert list(map(comparable, restored)) == list(map(comparable, expected))


def test_unfinished_run_prevents_archiving(tmp_path, capsys):
    for name in ("done", "begun"):
        write_workdir(tmp_path / name, ERRORS)
    (tmp_path / "begun" / "summary.json").unlink()
    assert archive.main([str(tmp_path), "--remove"]) == 2
    assert "begun" in capsys.readouterr().err
    assert not (tmp_path / "runs.jsonl").exists()
    assert (tmp_path / "done" / "summary.json").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.", "1."), ('{"name"', '"name"'), ('"per_seed":[', '"per_seed":[9,')],
    ids=["digit", "syntax", "summary"],
)
def test_damage_to_an_archive_is_found(runs, tmp_path, old, new):
    """A digit of a row before the last, when the run is a workdir again."""
    archive.main([str(runs / "sweep"), f"--out={tmp_path}"])
    path = tmp_path / "runs.jsonl"
    first, second = path.read_text().splitlines()
    begin = first.index('"rows"') if old == "0." else 0
    path.write_text(f"{first[:begin]}{first[begin:].replace(old, new, 1)}\n{second}\n")
    if old == "0.":
        archive.main([str(tmp_path), "--restore", f"--out={tmp_path / 'again'}"])
    runs, problems = results.load(tmp_path / "again" if old == "0." else tmp_path)
    assert len(problems) == 1
    assert len(runs) == (1 if old in ("0.", '"per_seed":[') else 0)
