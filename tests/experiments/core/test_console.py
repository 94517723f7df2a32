"""Commands that print to an output that cannot take all of it; rates, and times left."""

import os
import signal
import subprocess
import sys

import pytest

from experiments.core.console import UNREAD, clock, pace
from experiments.core.errors import printable


def command(body):
    """A program whose command has this body, and returns 3."""
    return [
        sys.executable,
        "-c",
        "import os, sys\nfrom experiments.core import console\nfrom experiments.core.errors import UsageError\n"
        f"def main(arguments):\n    {body}\n    return 3\nconsole.run(main)",
    ]


def said(body, environment=None, **options):
    done = subprocess.run(command(body), capture_output=True, env=os.environ | (environment or {}), **options)
    return done.returncode, done.stdout, done.stderr


def test_status_is_that_of_the_command():
    """Prints as escapes what the encoding lacks."""
    assert said("raise UsageError('a mistake')") == (2, b"", b"error: a mistake\n")
    locale = {"PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONUTF8": "0"}
    assert said("print('1 \\u00b1 2', '\\udcff')", locale) == (3, rb"1 \xb1 2 \udcff" + b"\n", b"")


@pytest.mark.parametrize("stream", ["sys.stdout", "sys.stderr"])
def test_closed_pipe_ends_command_silently(stream):
    with subprocess.Popen(
        command(f"[print('line', file={stream}) for _ in range(10**5)]"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        read, other = (process.stdout, process.stderr)[:: 1 if stream == "sys.stdout" else -1]
        assert read.readline() == b"line\n"
        read.close()
        assert other.read() == b""
        assert process.wait() == UNREAD == 128 + signal.SIGPIPE


def test_a_full_disk_is_a_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(command("print('line')"), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: No space left on device")
    assert done.stderr.count(b"\n") == 1


def test_missing_package_is_one_line():
    status, _, errors = said("sys.modules.update(tensorflow_datasets=None, grain=None); import grain")
    assert (status, errors.count(b"\n")) == (2, 1)
    assert b"grain" in errors
    assert b"make install" in errors


def test_control_characters_are_escaped():
    assert printable("lam = 0.1 ± é λ") == "lam = 0.1 ± é λ"
    assert printable("\x1b[2J\x9b\r\n\u202e\udcff") == r"\x1b[2J\x9b\r\n\u202e\udcff"


def test_rate_and_time_left():
    assert pace(10, 30, 4.0) == "2.5 a second, 0:08 left"
    assert pace(1, 1000, 7.5) == "7.5 s each, 2:04:52 left"
    assert [clock(seconds) for seconds in (0, 59.7, 3599.6, 3661)] == ["0:00", "1:00", "1:00:00", "1:01:01"]
