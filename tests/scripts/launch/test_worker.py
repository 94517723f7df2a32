"""A worker of a TPU runs one command at a time; one left by an earlier connection saves and ends first."""

import os
import subprocess
import sys
import time

import pytest

from scripts.launch.code import ROOT
from tests.experiments.support import is_running, wait_for_end

TRAIN = """
import os, signal, sys, time
def save(*_):
    open("saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
while True:
    try:
        print("step", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        save()
    time.sleep(0.05)
"""


@pytest.fixture
def worker(tmp_path):
    """Starts the script in an empty home."""
    script = tmp_path / "code" / "scripts" / "launch" / "worker.sh"
    script.parent.mkdir(parents=True)
    script.symlink_to(ROOT / "scripts" / "launch" / "worker.sh")

    def start(*command):
        environment = os.environ | {"HOME": str(tmp_path), "HOSTNAME": "t1v-n-0-w-3"}
        arguments = ["bash", str(script), *command]
        return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)

    return start


def python(code):
    return [sys.executable, "-IS", "-c", code]


@pytest.mark.parametrize(("end", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_lines_and_status_are_passed_on(worker, end, status):
    words = "print('a\\nb', flush=True); print('c', file=sys.stderr, flush=True)"
    process = worker(*python(f"import os, sys; {words}; {end}"))
    out, _ = process.communicate(timeout=600)
    assert (out, process.returncode) == ("[3] a\n[3] b\n[3] c\n", status)


@pytest.mark.parametrize("command", [["echo", "mine"], []])
def test_running_command_saves_before_next(worker, tmp_path, command):
    with worker(*python(TRAIN)) as first:
        assert first.stdout.readline() == "[3] step\n"
        second = worker(*command)
        out, _ = second.communicate(timeout=600)
        assert second.returncode == 0
        assert "which was left running" in out
        assert ("mine" in out) == bool(command)
        assert (tmp_path / "code" / "saved").exists()
    assert first.returncode == 0


def test_run_saves_when_output_is_closed(worker, tmp_path):
    with worker(*python(TRAIN)) as process:
        process.stdout.readline()
        process.stdout.close()
    assert process.returncode == 0
    assert (tmp_path / "code" / "saved").exists()


def test_orphaned_command_is_ended(worker, tmp_path):
    process = worker(*python("import time; time.sleep(600)"))
    record, deadline = tmp_path / "sparse-topk" / "pid", time.monotonic() + 600
    while not (record.exists() and record.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int(record.read_text())
    while os.getpgid(pid) == process.pid and time.monotonic() < deadline:  # until it has a session of its own
        time.sleep(0.02)
    os.killpg(process.pid, 9)
    process.communicate(timeout=600)
    assert is_running(pid)
    worker().communicate(timeout=600)
    assert wait_for_end([pid]) == []
