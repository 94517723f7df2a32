"""Runs are killed at random moments, stopped by signals, and their files damaged in every way known here.

Each must end with the same numbers as a run that nothing happens to, or refuse in one line that names the file, without
changing anything. An hour in all, and so only in `make chaos`; of each kind there is one in the other tests. KILLS says
how many, SEED which random moments and places.
"""

import os
import random
import shutil
import signal
import time

import pytest

from tests.chaos import runs
from tests.chaos.damages import DAMAGES
from tests.experiments.support import rows_without_seconds

KILLS, SEED = int(os.environ.get("KILLS", 50)), int(os.environ.get("SEED", 0))
IN_A_RUN = 5  # kills, until it is let go on to its end
pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("signals_count")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run that nothing happens to, and the seconds it takes once its code is compiled."""
    folder = tmp_path_factory.mktemp("whole")
    runs.end(runs.start(folder / "compiled"))
    begin = time.monotonic()
    ended = runs.end(runs.start(folder / "run"))
    seconds = time.monotonic() - begin
    rows = rows_without_seconds(folder / "run")
    runs.check_done(folder / "run", ended, rows)
    assert len(rows) > runs.EPOCHS
    return rows, seconds


@pytest.fixture(scope="module")
def half(whole, tmp_path_factory):
    """A run that was killed when it had two thirds of its rows."""
    workdir = tmp_path_factory.mktemp("half") / "run"
    process = runs.start(workdir)
    assert runs.wait(process, lambda: runs.num_rows(workdir) >= len(whole[0]) * 2 // 3)
    runs.kill(process)
    return workdir


@pytest.mark.parametrize("first", range(0, KILLS, IN_A_RUN))
def test_killed_run_ends_with_same_rows(whole, tmp_path, first):
    rng, (expected, seconds) = random.Random(f"{SEED} {first}"), whole
    workdir, number = tmp_path / "0", 0
    process = runs.start(workdir)
    for _ in range(min(IN_A_RUN, KILLS - first)):
        while not runs.wait_for_moment(process, workdir, rng.choice(runs.MOMENTS), rng, seconds):
            runs.check_done(workdir, runs.end(process), expected)  # it was done before: another
            number += 1
            workdir = tmp_path / str(number)
            process = runs.start(workdir)
        runs.kill(process)
        process = runs.start(workdir)
    runs.check_done(workdir, runs.end(process), expected)


@pytest.mark.parametrize("stop", runs.STOPS, ids=lambda stop: stop.name)
def test_a_run_that_a_signal_stops_goes_on(whole, tmp_path, stop):
    expected, _ = whole
    process = runs.start(tmp_path)
    assert runs.wait(process, lambda: runs.num_rows(tmp_path) >= len(expected) // 3)
    process.send_signal(stop)
    status, out, _ = runs.end(process)
    assert status == 0
    assert f"stopped by {signal.Signals(stop).name}" in out
    runs.check_done(tmp_path, runs.end(runs.start(tmp_path)), expected)


def contents(workdir):
    """All files but the lock, which means nothing."""
    return {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damaged_run_resumes_or_refuses(whole, half, tmp_path, damage):
    workdir = shutil.copytree(half, tmp_path / "run")
    intact = contents(workdir)
    damage.act(workdir, random.Random(f"{SEED} {damage.name}"))
    before = contents(workdir)
    assert before != intact
    status, out, err = runs.end(runs.start(workdir))
    if damage.refused:
        (line,) = err.splitlines()
        assert status == 2
        assert damage.refused in line
        assert contents(workdir) == before
        return
    assert damage.said in out
    runs.check_done(workdir, (status, out, err), whole[0])
