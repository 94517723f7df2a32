"""What people see of a run under way."""

import time

import pytest

from experiments.core.training.plan import Plan
from experiments.core.training.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_time_left_counts_from_where_this_launch_began(clock, capsys):
    plan = Plan(10, 1000, 1, 100, 100, "step")
    progress = Progress(("error",), plan, 200, 3)
    row = {"step": 200, "diverged": [False, True, False], "train_loss": [None] * 3, "error": [1.0, None, 2.0]}
    progress.show(row)
    clock[0] = 90.0
    progress.show(row | {"step": 300, "train_loss": [2.0, None, 4.0]})
    clock[0] = 4500.0
    progress.reached(301)
    clock[0] = 4520.0
    progress.reached(302)  # too soon after the last line
    assert capsys.readouterr().out.splitlines() == [
        "step  200/1000  train_loss -  error 1.5  1 of 3 seeds diverged",
        "step  300/1000  train_loss 3  error 1.5  1 of 3 seeds diverged  1.11 a second, 10:30 left",
        "step  301/1000  44.6 s each, 8:39:04 left",
    ]


@pytest.mark.parametrize(("first_call", "left"), [(12.0, "1 a second, 15:00 left"), (50.0, "1.49 s each, 22:21 left")])
def test_what_the_first_call_alone_has_to_do_is_counted_only_where_it_matters_little(clock, capsys, first_call, left):
    progress = Progress((), Plan(10, 1000, 1, 100, 100, "step"), 0, 1)
    clock[0] = first_call
    progress.warm(1)
    clock[0] += 99.0
    progress.show({"step": 100, "diverged": [False], "train_loss": [1.0]})
    assert capsys.readouterr().out.endswith(f"  {left}\n")


def test_there_is_no_time_left_to_tell_before_a_second_call(clock, capsys):
    progress = Progress((), Plan(10, 1000, 100, 100, 100, "step"), 0, 1)
    clock[0] = 5.0
    progress.warm(100)
    progress.show({"step": 100, "diverged": [False], "train_loss": [1.0]})
    clock[0] = 15.0
    progress.show({"step": 200, "diverged": [False], "train_loss": [1.0]})
    assert (
        capsys.readouterr().out
        == "step  100/1000  train_loss 1\nstep  200/1000  train_loss 1  10 a second, 1:20 left\n"
    )
