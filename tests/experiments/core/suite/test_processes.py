"""Runs of a suite side by side: the same choices and lines, and what becomes of them when a process ends."""

import dataclasses
import fcntl
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from experiments.core.errors import UsageError
from experiments.core.record.environment import processors
from experiments.core.suite import command, runner
from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite.__main__ import SUITE
from tests.experiments.support import happens, start, undrawn, wait_for_end

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
two_processors = pytest.mark.skipif(len(processors()) < 2, reason="there is one processor")


@two_processors
def test_two_jobs_wait_for_the_best_setting(tmp_path, capsys):
    other = SuiteRun("other", BASE | {"seeds": (1,)})
    runs = [other, *CANDIDATES, FINAL]  # the first is over long before the last, which then has nothing beside it
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_text("")
    assert command.run_suite(undrawn(SUITE), tmp_path, runs, runs, ["suite"], jobs=2) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[1] for line in lines if line.startswith("[")) == sorted(run.name for run in runs)
    assert sum(bool(re.search(r"valid_error .* s(  \(time left|$)", line)) for line in lines) == 2
    assert any("FAILED" in line and "without its config.json" in line for line in lines)
    best = json.loads((tmp_path / "choices.json").read_text())["rate"]["setting"]["optimizer.learning_rate"]
    config = json.loads((tmp_path / "final" / "config.json").read_text())
    assert config["optimizer"]["learning_rate"] == best
    cores = [json.loads((tmp_path / run.name / "environment.json").read_text())["machine"]["cores"] for run in runs[1:]]
    if hasattr(os, "sched_setaffinity"):
        assert max(cores[:2]) <= (len(processors()) + 1) // 2
        assert cores[2] == len(processors())


def _are_training(out: Path) -> bool:
    """Whether the long runs have trained: the first row is of a network that has not been."""
    rows = [out / run.name / "metrics.jsonl" for run in LONG_RUNS]
    return all(path.exists() and path.read_text().count("\n") > 1 for path in rows)


def _in_use(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _saved(out: Path, name: str) -> bool:
    """Whether a state is there that was saved to its end, and nobody is at work any more."""
    steps = [path for path in (out / name / "checkpoints").glob("*") if path.name.isdecimal()]
    return bool(steps) and not _in_use(out / name / ".lock") and not (out / name / "summary.json").exists()


@pytest.fixture
def _late_signals_end_nothing():
    """Nor are they ignored, as SIGHUP is by what nohup starts."""
    before = signal.signal(signal.SIGHUP, lambda number, frame: None)
    yield
    signal.signal(signal.SIGHUP, before)


@two_processors
@pytest.mark.usefixtures("_late_signals_end_nothing")
def test_closed_terminal_saves_every_run(tmp_path, capfd):
    def hang_up():
        happens(lambda: _are_training(tmp_path))
        for _ in range(2):  # the terminal says so, and its shell
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.02)

    suite = dataclasses.replace(undrawn(SUITE), presets={"demo": lambda: LONG_RUNS})
    closing = threading.Thread(target=hang_up)
    closing.start()
    assert command.main(suite, [f"--out={tmp_path}", "--preset=demo", "--jobs=2"]) == 0
    closing.join()
    out, err = capfd.readouterr()
    assert ("stopped; run it again and it resumes" in out, err) == (True, "")
    assert multiprocessing.active_children() == []
    assert all(_saved(tmp_path, run.name) for run in LONG_RUNS)


@two_processors
def test_killed_process_costs_only_its_run(tmp_path):
    """Runs that are left save their state when the first process is killed."""
    options = [f"--out={tmp_path}", "--preset=demo", "--jobs=2"]
    # With nohup, to which a closed terminal is nothing.
    process = start(["nohup", sys.executable, "-c", _SUITE, *options], start_new_session=True, stdin=subprocess.DEVNULL)
    assert happens(lambda: _are_training(tmp_path))
    started_by = Path(f"/proc/{process.pid}/task").glob("*/children")  # by thread
    children = [int(pid) for path in started_by for pid in path.read_text().split()]
    both = [pid for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(both) == 2
    os.killpg(process.pid, signal.SIGHUP)
    rows = [tmp_path / run.name / "metrics.jsonl" for run in LONG_RUNS]
    seen = [path.stat().st_size for path in rows]
    assert happens(lambda: all(path.stat().st_size > before for path, before in zip(rows, seen, strict=True)))
    os.kill(both[0], signal.SIGKILL)
    line = next(line for line in process.stdout if "FAILED" in line)
    assert line.endswith("FAILED: its process was killed, by a user or for want of memory\n")
    process.kill()
    process.communicate(timeout=600)
    assert wait_for_end(both) == []
    (survivor,) = {run.name for run in LONG_RUNS} - {line.split()[1]}
    assert _saved(tmp_path, survivor)


def test_jobs_are_limited_to_processors(tmp_path, capsys):
    most = len(processors())
    for jobs in (0, most + 1):
        with pytest.raises(SystemExit) as stopped:
            command.main(SUITE, [f"--out={tmp_path}", f"--jobs={jobs}"])
        assert stopped.value.code == 2
        message = f"--jobs={jobs} is not allowed: it must be in [1, {most}], the processors there are"
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("platform", "most", "jobs"), [("gpu", 8, 1), ("cpu", 8, 3), ("cpu", 2, 2)])
def test_default_jobs_fit_the_machine(tmp_path, monkeypatch, platform, most, jobs):
    monkeypatch.setattr("jax.default_backend", lambda: platform)
    monkeypatch.setattr(command, "processors", lambda: [0, 1, 2])
    monkeypatch.setattr(command, "MOST", most)
    asked = []
    monkeypatch.setattr(runner.Runner, "train", lambda self, jobs: asked.append(jobs) or [])
    runs = [SuiteRun(f"run{number}", BASE) for number in range(5)]
    assert command.run_suite(undrawn(SUITE), tmp_path, runs, runs, ["suite"], jobs=None) == 0
    assert asked == [jobs]
    if platform == "gpu":
        with pytest.raises(UsageError, match="--jobs=2 is not allowed: it must be 1 on a gpu"):
            command.run_suite(SUITE, tmp_path, runs, runs, ["suite"], jobs=2)


def test_missing_data_is_one_error(tmp_path, capsys):
    runs = [SuiteRun(f"run{number}", BASE | {"dataset": "nothing", "download": False}) for number in range(2)]
    with pytest.raises(UsageError, match="data set 'nothing' could not be obtained"):
        command.run_suite(undrawn(SUITE), tmp_path, runs, runs, ["suite"], jobs=1)
    assert "FAILED" not in capsys.readouterr().out


def test_runs_wait_for_what_they_need(tmp_path):
    weights = SuiteRun("weights", BASE)
    later = SuiteRun("later", BASE, best_of="rate", weights_of="weights")
    runs = [later, FINAL, *CANDIDATES, weights]
    made = runner.Runner(SUITE, tmp_path, runs, runs, ["suite"])
    assert [[run.name for run in wave] for wave in made.waves()] == [
        [*(run.name for run in CANDIDATES), "weights"],
        ["later", "final"],
    ]
    # Of what is not selected nothing is awaited, and a run says what it lacks.
    alone = runner.Runner(SUITE, tmp_path, runs, [FINAL], ["suite"])
    assert [[run.name for run in wave] for wave in alone.waves()] == [["final"]]
