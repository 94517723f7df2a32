"""Runs in steps, read as those in epochs are: finished ones, unfinished ones, and those that do not fit together."""

import json

import pytest

from experiments.core.record.files import write_json
from experiments.core.record.metrics import Writer, sha256_of
from experiments.core.record.summary import summarize
from experiments.core.record.workdir import Workdir
from experiments.core.report.results import load
from experiments.mnist_pruning import report
from tests.scripts.workdirs import write_workdir


def row_of(step, loss):
    return {
        "epoch": step / 22,
        "step": step,
        "seconds": 0.1 * step,
        "diverged": [False, loss is None],
        "learning_rate": 0.001,
        "train_loss": [1.0, loss],
        "test_accuracy": {"1": [70.0, 71.0], "5": [90.0, loss]},
        "performance": {"step_seconds": 0.1, "mfu": None},
    }


def write_steps(path, reached=100, steps=100, loss=0.5):
    """A run of two seeds that has come to the step `reached`, and is done where that is the last one."""
    path.mkdir(parents=True)
    workdir = Workdir(path)
    write_json(workdir.config, {"dataset": "digits", "steps": steps, "eval_every": 20, "seeds": [0, 1]})
    rows = [row_of(step, loss) for step in range(0, reached + 1, 20)]
    Writer(workdir.metrics, rows).close()
    if reached == steps:
        write_json(workdir.summary, summarize([0, 1], rows[-1]) | {"metrics_sha256": sha256_of(rows)})
    return workdir


def change(path, **fields):
    write_json(path, json.loads(path.read_text()) | fields)


def test_load_returns_finished_runs(tmp_path):
    write_steps(tmp_path / "a")
    write_steps(tmp_path / "b", loss=None)
    runs, problems = load(tmp_path)
    assert problems == []
    assert [run.name for run in runs] == ["a", "b"]
    assert [run.final("test_accuracy/5") for run in runs] == [[90.0, 0.5], [90.0, None]]
    assert runs[0].final("train_loss") == [1.0, 0.5]
    assert runs[0].rows[-1]["step"] == 100
    with pytest.raises(KeyError, match="hardened_error"):
        runs[0].final("hardened_error")


def test_load_reports_inconsistent_runs(tmp_path):
    write_steps(tmp_path / "unfinished", reached=40)
    change(write_steps(tmp_path / "longer").config, steps=120)
    change(write_steps(tmp_path / "shorter").summary, steps=80)
    other = row_of(100, 0.5) | {"test_accuracy": {"1": [70.0, 71.0], "5": [90.0, 0.6]}}
    change(write_steps(tmp_path / "nested").summary, **summarize([0, 1], other))
    fewer = {name: value for name, value in row_of(100, 0.5).items() if name != "train_loss"}
    change(write_steps(tmp_path / "fewer").summary, **summarize([0, 1], fewer))
    runs, problems = load(tmp_path)
    assert runs == []
    foreign = "summary.json does not belong to the last row of metrics.jsonl"
    assert {problem.name: problem.reason for problem in problems} == {
        "unfinished": "unfinished, at step 40 of 100",
        "longer": foreign,
        "shorter": foreign,
        "nested": foreign,
        "fewer": foreign,
    }


def damaged(path, name, content):
    write_steps(path)
    file = path / name
    file.write_bytes(content(file.read_bytes()) if callable(content) else content)


def without_line(number):
    return lambda content: b"".join(line for i, line in enumerate(content.splitlines(True), 1) if i != number)


def test_load_names_damaged_file_and_line(tmp_path):
    damaged(tmp_path / "config", "config.json", b"{")
    damaged(tmp_path / "nul", "config.json", bytes(9))
    damaged(tmp_path / "summary", "summary.json", b"{")
    damaged(tmp_path / "environment", "environment.json", b"[]")
    damaged(tmp_path / "cut", "metrics.jsonl", lambda content: content.replace(b'"step": 40, ', b'"step": \n', 1))
    damaged(tmp_path / "garbage", "metrics.jsonl", lambda content: b"\xff\x00\n" + content)
    damaged(tmp_path / "missing", "metrics.jsonl", without_line(3))
    damaged(tmp_path / "first", "metrics.jsonl", without_line(1))
    damaged(tmp_path / "twice", "metrics.jsonl", lambda content: content.splitlines(True)[0] + content)
    change(write_steps(tmp_path / "changed").summary, metrics_sha256=64 * "0")
    change(write_steps(tmp_path / "unsummed").summary, metrics_sha256=None)
    runs, problems = load(tmp_path)
    assert runs == []
    reasons = {problem.name: problem.reason for problem in problems}
    beginnings = {
        "config": "config.json is damaged (no JSON: ",
        "nul": "config.json is damaged (no JSON: ",
        "summary": "summary.json is damaged (no JSON: ",
        "environment": "environment.json is damaged (no JSON object): ",
        "cut": "metrics.jsonl is damaged (line 3 is no row): put back a copy of it",
        "garbage": "metrics.jsonl is damaged (line 1 is no row): ",
        "missing": "metrics.jsonl is damaged (line 3 is of step 60, where the row of step 40 has its place): ",
        "first": "metrics.jsonl is damaged (line 1 is of step 20, where the row of step 0 has its place): ",
        "twice": "metrics.jsonl is damaged (line 2 is of step 0, after one of step 0): ",
        "unsummed": "metrics.jsonl is damaged (its SHA-256 is not the one in summary.json): ",
        "changed": "metrics.jsonl is damaged (its SHA-256 is not the one in summary.json): ",
    }
    assert {name: reasons[name][: len(start)] for name, start in beginnings.items()} == beginnings


def test_report_leaves_out_other_experiments(tmp_path):
    write_steps(tmp_path / "other")
    write_workdir(tmp_path / "hard", [[90.0, 90.0], [7.0, 8.0]], method="hard")
    runs, (problem,) = report.PRESENTATION.load(tmp_path)
    assert list(runs.index) == ["hard"]
    assert (problem.name, problem.reason) == ("other", "not a run of mnist_pruning")
    report.make(tmp_path)
    assert "`other`: not a run of mnist_pruning" in (tmp_path / "table.md").read_text()
