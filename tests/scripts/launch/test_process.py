"""Programs that are started go on, whatever happens to what they say."""

import io
import sys
import time
from pathlib import Path

from scripts.launch.process import Console

LINES = [sys.executable, "-c", "for i in range(20000): print(i, 'é')"]


class Broken(io.StringIO):
    """A terminal that is gone."""

    def write(self, text):
        raise BrokenPipeError


def ended(stream):
    deadline = time.monotonic() + 60
    while stream.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return stream.poll()


def test_a_program_whose_lines_nobody_reads_ends_as_any_other():
    console = Console(out=Broken())
    assert ended(console.stream(LINES, "", None)) == 0
    console.stop()
    assert console.stopping.is_set()


def test_a_log_that_cannot_be_written_is_said_and_the_lines_are_still_passed_on():
    out = io.StringIO()
    stream = Console(out=out).stream(LINES, "> ", Path("/dev/full"))
    assert ended(stream) == 0
    assert "> /dev/full is not written any more: " in out.getvalue()
    assert stream.lines[-1] == "19999 é"
    assert out.getvalue().count("\n") == 20001
