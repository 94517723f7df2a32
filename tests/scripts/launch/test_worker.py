"""What runs on a worker of a TPU: one training at a time, stopped gently when nobody listens."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.experiments.support import ROOT, is_running, wait_for_end

TRAIN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (open("saved", "w").close(), sys.exit(0)))
open("pid", "w").write(str(os.getpid()))
while True:
    print("step", flush=True)
    time.sleep(0.05)
"""

SILENT = """
import os, time
open("writing", "w").write(str(os.getpid()))
os.rename("writing", "pid")
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def worker(tmp_path):
    """Starts the module in an empty home."""

    def start(*arguments):
        environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "scripts.launch.worker", *arguments]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    return start


def started(process):
    assert process.stdout.readline() == "step\n"


def test_lines_and_status_are_passed_on(worker):
    process = worker("--", sys.executable, "-c", "import sys; print('a\\nb'); print('c', file=sys.stderr); sys.exit(7)")
    out, _ = process.communicate(timeout=600)
    assert (sorted(out.split()), process.returncode) == (["a", "b", "c"], 7)


def test_death_by_a_signal_is_a_status(worker):
    process = worker("--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    process.communicate(timeout=600)
    assert process.returncode == 137


@pytest.mark.parametrize("how", ["next", "stop"])
def test_what_runs_is_asked_to_save_by_whoever_comes_next(worker, tmp_path, how):
    first = worker("--", sys.executable, "-c", TRAIN)
    started(first)
    second = worker(*(["--", "echo", "mine"] if how == "next" else ["--stop"]))
    out, _ = second.communicate(timeout=600)
    assert second.returncode == 0
    assert "which was left running" in out
    assert ("mine" in out) == (how == "next")
    assert (tmp_path / "saved").exists()
    first.communicate(timeout=600)
    assert first.returncode == 0


def test_when_nobody_listens_any_more_it_is_asked_to_save(worker, tmp_path):
    process = worker("--", sys.executable, "-c", TRAIN)
    started(process)
    process.stdout.close()
    assert process.wait(timeout=600) == 0
    assert (tmp_path / "saved").exists()


def test_a_worker_that_was_killed_leaves_nothing_that_the_next_would_not_find(worker, tmp_path):
    process = worker("--", sys.executable, "-c", SILENT)  # which no broken pipe ends
    deadline = time.monotonic() + 600
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=600)
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    worker("--stop").communicate(timeout=600)
    assert wait_for_end([pid]) == []


def test_the_record_of_whoever_has_come_next_stays(worker, tmp_path):
    record = tmp_path / "sparse-topk" / "running.json"
    replace = f'import pathlib; pathlib.Path({str(record)!r}).write_text(\'{{"pid": 1, "started": "0"}}\')'
    worker("--", sys.executable, "-c", replace).communicate(timeout=600)
    assert json.loads(record.read_text())["pid"] == 1
    worker("--", "true").communicate(timeout=600)
    assert not record.exists()
