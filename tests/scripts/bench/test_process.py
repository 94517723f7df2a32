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
def test_fatal_contestant_spares_the_others(forked, capsys):
    answer = isolated(fatal)
    assert answer["found"]["good"] not in (None, os.getpid())
    assert answer["failed"] == {"bad": "it ended the process with status 3"}
    assert "bad is left out" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_hanging_contestant_is_left_out(forked):
    assert isolated(hanging, minutes=0.02) == {"failed": {"slow": "not done after 0.02 minutes"}}


def test_other_errors_fail_with_one_line():
    """In a process that is started as those of users are."""
    with pytest.raises(FailedError) as error:
        isolated(broken)
    assert str(error.value) == "ValueError: no such thing"
