"""Output of commands, in any encoding and into closed pipes; and the end of their lines of progress."""

import datetime
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from experiments.core.errors import in_one_line

UNREAD = 128 + signal.SIGPIPE  # the exit status of whatever prints to nobody, as shells have it


def run(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Runs a command on the arguments of this process, and ends the process with its exit status.

    Characters that the encoding of the output lacks are written as escapes. If nobody reads any more, as after
    `| head`, the command ends at the next thing that it prints, with the status UNREAD.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def command() -> int:
        status = main(sys.argv[1:])
        sys.stdout.flush()  # a disk that is full shows here, and not at exit
        return status

    try:
        sys.exit(in_one_line(command))
    except BrokenPipeError:
        sys.exit(UNREAD)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python would try once more at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def pace(done: float, total: float, seconds: float) -> str:
    """Says after so many seconds of `done` of `total` things `12.3 a second, 0:41 left`, or `2.5 s each, ...`."""
    each = max(seconds, 1e-9) / done
    speed = f"{each:.3g} s each" if each > 1 else f"{1 / each:.3g} a second"
    return f"{speed}, {clock(each * (total - done))} left"


def clock(seconds: float) -> str:
    """`0:41`, or `1:02:03` from an hour on."""
    return re.sub("^0:0?", "", str(datetime.timedelta(seconds=round(seconds))))
