"""Runs of a suite side by side: the same choices and lines, and what becomes of them when a process ends."""

import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from experiments.core.errors import UsageError
from experiments.core.record.workdir import Workdir
from experiments.core.suite import command, crew, runner
from experiments.core.suite.plan import SuiteRun
from experiments.core.suite.trainer import Took
from experiments.mnist_pruning.suite.__main__ import SUITE
from tests.experiments.support import start, undrawn, wait_for_end

BASE = {"dataset": "digits", "seeds": (0,), "epochs": 1, "method": "dense", "hidden": (), "prune_layers": (1,)}
VALIDATION = BASE | {"split": "validation", "validation_size": 300}
CANDIDATES = [
    SuiteRun(f"sweep/rate{rate:g}", VALIDATION, {"optimizer.learning_rate": rate}, candidate_for="rate")
    for rate in (1e-3, 1e-1)
]
FINAL = SuiteRun("final", BASE, best_of="rate")
LONG = BASE | {"epochs": 20_000, "checkpoint_every": 20_000}
LONG_RUNS = [SuiteRun("one", LONG), SuiteRun("two", LONG | {"seeds": (1,)})]
_SUITE = f"""
import dataclasses, sys
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite.__main__ import SUITE

runs = {LONG_RUNS!r}
sys.exit(command.main(dataclasses.replace(SUITE, presets=dict(demo=lambda: runs)), sys.argv[1:]))
"""
two_processors = pytest.mark.skipif(len(crew.processors()) < 2, reason="there is one processor")


@two_processors
def test_two_at_once_choose_wait_and_say_it_in_whole_lines(tmp_path, capsys):
    other = SuiteRun("other", BASE | {"seeds": (1,)})
    runs = [*CANDIDATES, FINAL, other]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_text("")
    assert command.run_suite(undrawn(SUITE), tmp_path, runs, runs, ["suite"], jobs=2) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[1] for line in lines if line.startswith("[")) == sorted(run.name for run in runs)
    assert sum("valid_error" in line and line.endswith(")") for line in lines) == 2
    assert any("FAILED" in line and "without its config.json" in line for line in lines)
    best = json.loads((tmp_path / "choices.json").read_text())["rate"]["setting"]["optimizer.learning_rate"]
    config = json.loads((tmp_path / "final" / "config.json").read_text())
    assert config["optimizer"]["learning_rate"] == best
    cores = [json.loads((tmp_path / run.name / "environment.json").read_text())["machine"]["cores"] for run in runs[:3]]
    if hasattr(os, "sched_setaffinity"):
        assert max(cores) <= (len(crew.processors()) + 1) // 2


def _begin_long_runs(out: Path):
    process = start([sys.executable, "-c", _SUITE, f"--out={out}", "--preset=demo", "--jobs=2"], start_new_session=True)
    deadline = time.monotonic() + 600
    rows = [out / run.name / "metrics.jsonl" for run in LONG_RUNS]
    # The first row is of a network that has not been trained.
    while not all(path.exists() and path.read_text().count("\n") > 1 for path in rows) and time.monotonic() < deadline:
        time.sleep(0.01)
    (children,) = (
        path.read_text().split() for path in Path(f"/proc/{process.pid}/task/{process.pid}").glob("children")
    )
    return process, [pid for pid in map(int, children) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


@two_processors
@pytest.mark.parametrize("whom", ["the first process", "all of them", "the first process, at once"])
def test_what_is_stopped_is_saved(tmp_path, whom):
    process, crew_of_two = _begin_long_runs(tmp_path)
    assert len(crew_of_two) == 2
    if whom == "all of them":
        os.killpg(process.pid, signal.SIGINT)
    else:
        os.kill(process.pid, signal.SIGKILL if whom.endswith("at once") else signal.SIGTERM)
    out, err = process.communicate(timeout=600)
    assert wait_for_end(crew_of_two) == []
    if not whom.endswith("at once"):
        assert (process.returncode, err) == (0, "")
        assert "stopped; run it again and it resumes" in out
    for run in LONG_RUNS:
        assert list((tmp_path / run.name / "checkpoints").iterdir())
        assert not Workdir(tmp_path / run.name).in_use()
        assert not (tmp_path / run.name / "summary.json").exists()


@two_processors
def test_a_process_that_dies_costs_its_run_alone(tmp_path):
    process, crew_of_two = _begin_long_runs(tmp_path)
    os.kill(crew_of_two[0], signal.SIGKILL)
    line = next(line for line in process.stdout if "FAILED" in line)
    assert line.endswith("FAILED: its process ended with exit code -9\n")
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=600)
    (survivor,) = {run.name for run in LONG_RUNS} - {line.split()[1]}
    assert list((tmp_path / survivor / "checkpoints").iterdir())


def test_more_than_there_are_processors_are_refused(tmp_path, capsys):
    most = len(crew.processors())
    for jobs in (0, most + 1):
        with pytest.raises(SystemExit) as stopped:
            command.main(SUITE, [f"--out={tmp_path}", f"--jobs={jobs}"])
        assert stopped.value.code == 2
        message = f"--jobs={jobs} is not allowed: it must be in [1, {most}], the processors there are"
        assert message in capsys.readouterr().err


def test_on_an_accelerator_runs_are_trained_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    with pytest.raises(UsageError, match="--jobs=2 is not allowed: it must be 1 on a gpu"):
        command.run_suite(SUITE, tmp_path, [FINAL], [FINAL], ["suite"], jobs=2)


def test_time_left_is_shared_out_among_those_at_work(tmp_path, monkeypatch, capsys):
    runs = [SuiteRun(f"run{number}", BASE) for number in range(5)]
    suite = dataclasses.replace(SUITE, cost=lambda run: 1.0)
    (tmp_path / "run0").mkdir()
    said = runner._Runner(suite, tmp_path, runs, runs, ["suite"], jobs=2)
    monkeypatch.setattr(runner, "_result", lambda path, shown: "done")
    said.waiting.pop(1)
    said.under_way.add(1)
    said._over(crew.Ended(1, took=Took(seconds=70, loading=40)))
    assert capsys.readouterr().out == "[1/5] run0  done  70 s  (time left ~ 60 s)\n"
