"""Signals, and the end of whoever reads what is printed, as a question that the training loop asks when it can stop."""

import contextlib
import errno
import os
import signal
import sys
from types import FrameType
from typing import Any

from experiments.core.errors import printable

# Where a terminal or a pipe is closed; SIGHUP comes with the former, before or after.
_CLOSED = (errno.EPIPE, errno.EIO, errno.EBADF)


class Interrupt:
    """While entered, the first SIGTERM, SIGINT or SIGHUP is only noted; a second SIGTERM or SIGINT acts as usual.

    orbax and JAX leave these signals alone (of several processes, `processes.py` sees to it), so
    without this a preempted run would lose what it did since the last checkpoint. What is ignored,
    as SIGHUP by nohup, stays so. SIGHUP comes twice when a terminal is closed, from it and from its
    shell: further ones change nothing.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        heeded = [number for number in self._SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore(*self._previous)

    def say(self, line: str) -> None:
        """Prints a line; where nobody reads it any more, that is a reason to stop, and where it finds no room, none."""
        try:
            print(printable(line), flush=True)
        except OSError as error:
            if error.errno in _CLOSED:
                self.received = self.received or "the end of whoever read its lines"
            _discard_output()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number).name
        self._restore(*(other for other in self._previous if other != signal.SIGHUP))

    def _restore(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            signal.signal(number, self._previous[number])


def _discard_output() -> None:
    """Lets what is still to be printed, some of it when Python ends, go nowhere."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
