"""Commands that print to an output that cannot take all of it."""

import os
import signal
import subprocess
import sys

import pytest

from experiments.core.console import UNREAD
from experiments.core.errors import printable


def command(body):
    """A program whose command has this body, and returns 3."""
    return [
        *(sys.executable, "-c"),
        "import os, sys\nfrom experiments.core import console\nfrom experiments.core.errors import UsageError\n"
        f"def main(arguments):\n    {body}\n    return 3\nconsole.run(main)",
    ]


@pytest.fixture(autouse=True, params=["", "1"], ids=["buffered", "unbuffered"])
def _buffered(monkeypatch, request):
    """Unbuffered output leaves nothing behind where it could not be written."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


def said(body, environment=None, **options):
    done = subprocess.run(command(body), capture_output=True, env=os.environ | (environment or {}), **options)
    return done.returncode, done.stdout, done.stderr


def test_the_status_is_that_of_the_command():
    assert said("print(arguments)") == (3, b"[]\n", b"")
    assert said("sys.exit(4)") == (4, b"", b"")
    assert said("raise UsageError('a mistake')") == (2, b"", b"error: a mistake\n")


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_what_an_encoding_lacks_is_written_as_an_escape(locale):
    locale = {"PYTHONCOERCECLOCALE": "0", **locale}
    assert said("print('1 \\u00b1 2', '\\udcff')", locale) == (3, rb"1 \xb1 2 \udcff" + b"\n", b"")


@pytest.mark.parametrize("stream", ["sys.stdout", "sys.stderr"])
def test_where_nobody_reads_any_more_a_command_ends_without_a_word(stream):
    with subprocess.Popen(
        command(f"[print('line', file={stream}) for _ in range(10**5)]"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        read, other = (process.stdout, process.stderr)[:: 1 if stream == "sys.stdout" else -1]
        assert read.readline() == b"line\n"
        read.close()
        assert other.read() == b""
        assert process.wait() == UNREAD == 128 + signal.SIGPIPE
    reader, writer = os.pipe()  # of a line alone, too
    os.close(reader)
    done = subprocess.run(command("print('line')"), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (UNREAD, b"")


def test_another_pipe_that_breaks_is_a_fault_and_a_full_disk_a_line():
    status, _, err = said("raise BrokenPipeError('of a socket')")
    assert status == 1
    assert b"BrokenPipeError: of a socket" in err
    with open("/dev/full", "w") as full:
        done = subprocess.run(command("print('line')"), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: No space left on device")
    assert done.stderr.count(b"\n") == 1


def test_what_a_terminal_would_obey_is_written_as_an_escape():
    assert printable("lam = 0.1 ± é λ") == "lam = 0.1 ± é λ"
    assert printable("\x1b[2J\x9b\r\n\u202e\udcff") == r"\x1b[2J\x9b\r\n\u202e\udcff"
