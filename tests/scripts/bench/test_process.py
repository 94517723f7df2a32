"""A contestant that ends its process costs itself alone."""

import multiprocessing
import os
import time

import pytest

from scripts.bench.process import FailedError, isolated


def fatal(contest):
    """Two contestants, of whom the first ends the process without a word."""
    found = {name: contest.attempt(name, end) for name, end in (("bad", lambda: os._exit(3)), ("good", os.getpid))}
    return {"found": found, "failed": contest.failed}


def hanging(contest):
    contest.attempt("slow", lambda: time.sleep(60))
    return {"failed": contest.failed}


def broken(contest):
    raise ValueError("no such thing\nand more")


@pytest.fixture
def forked(monkeypatch):
    """Processes begin at once, however busy the machine; they touch nothing of the threads beside them."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: fork)


@pytest.mark.filterwarnings("ignore")  # of forks beside threads
def test_who_ends_the_process_is_left_out_of_another_and_the_others_are_measured(forked, capsys):
    answer = isolated(fatal)
    assert answer["found"]["good"] not in (None, os.getpid())
    assert answer["failed"] == {"bad": "it ended the process with status 3"}
    assert "bad is left out" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_who_is_at_work_when_the_time_is_up_is_left_out(forked):
    assert isolated(hanging, minutes=0.02) == {"failed": {"slow": "not done after 0.02 minutes"}}


def test_what_fails_otherwise_fails_as_a_whole_with_a_line():
    """In a process that is started as those of users are."""
    with pytest.raises(FailedError) as error:
        isolated(broken)
    assert str(error.value) == "ValueError: no such thing"
