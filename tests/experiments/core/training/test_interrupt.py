"""Signals and broken terminals are noted, and nothing more."""

import errno
import io
import os
import signal

import pytest

from experiments.core.training.loop import Interrupt

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def unheeded(number, frame):
    raise AssertionError(f"{signal.Signals(number).name} was not noted")


@pytest.fixture(autouse=True)
def handlers():
    """Of this process, none of them to ignore a signal, as nohup makes it; a test must leave them as they were."""
    previous = {number: signal.signal(number, unheeded) for number in NUMBERS}
    before = [signal.getsignal(number) for number in NUMBERS]
    yield before
    after = [signal.getsignal(number) for number in NUMBERS]
    for number, handler in previous.items():
        signal.signal(number, handler)
    assert after == before


def test_a_second_sigterm_acts_as_usual_and_a_second_sighup_does_not(handlers):
    with Interrupt() as interrupt:
        assert interrupt.received is None
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) == handlers[0]
        signal.raise_signal(signal.SIGHUP)  # as a closed terminal and its shell send it
        assert interrupt.received == "SIGHUP"


def test_what_is_ignored_stays_so():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
        assert interrupt.received is None
    signal.signal(signal.SIGHUP, previous)


def test_nobody_to_print_to_is_a_reason_to_stop(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("sys.stdout", Gone())
    with Interrupt() as interrupt:
        interrupt.say("epoch 1")
        assert interrupt.received is not None
