"""Output of commands, whoever reads it and in whatever encoding."""

import io
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from experiments.core.errors import in_one_line

UNREAD = 128 + signal.SIGPIPE  # the exit status of whatever prints to nobody, as shells have it


def run(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Runs a command on the arguments of this process, and ends the process with its exit status.

    Characters that the encoding of the output lacks are written as escapes. Where nobody reads any more, as after
    `| head`, the command ends at the next thing that it prints, without a word, and with the status UNREAD.
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
        if not any(map(_is_unread, (sys.stdout, sys.stderr))):  # of another pipe
            raise
        sys.exit(UNREAD)
    finally:
        _drop_unwritten()


def _is_unread(stream: TextIO) -> bool:
    """Whether a stream is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)  # which leaves errors
    return bool(poll.poll(0))


def _drop_unwritten() -> None:
    """Drops what could not be written, which Python would try once more at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
