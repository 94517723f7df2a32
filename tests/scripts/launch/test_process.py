"""Programs that are started go on, whatever happens to what they say."""

import io
import sys
import time
from pathlib import Path

import pytest

from scripts.launch.process import Console

LINES = [sys.executable, "-c", "for i in range(20000): print(i, 'é')"]


class Broken(io.StringIO):
    """A terminal that is gone."""

    def write(self, text):
        raise BrokenPipeError


def ended(stream):
    deadline = time.monotonic() + 600
    while stream.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return stream.poll()


@pytest.mark.parametrize(
    ("status", "said", "reason"),
    [
        (1, ["ValueError: a reason", "ERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] exited"], "a reason"),
        (2, ["error: config.p=7", "##### Command execution on worker 0 failed with exit status 2. Continuing."], "p=7"),
        (1, ["ValueError: a reason", "E0929 17:42:48.59 104 coordination_service_agent.cc:332] error: x"], "a reason"),
        (255, ["error: a warning", "Connection to 10.0.0.1 closed.", "ERROR: (gcloud.ssh) exited [255]"], "[255]"),
        (1, ["epoch 1/4", "ERROR: (gcloud.compute) NOT_FOUND: no such TPU"], "no such TPU"),
        (1, ["epoch 1/4"], "epoch 1/4"),
    ],
)
def test_the_last_error_is_the_task_s_where_it_is_not_the_connection_that_failed(status, said, reason):
    program = f"import sys; print({chr(10).join(said)!r}); sys.exit({status})"
    stream = Console(out=io.StringIO()).stream([sys.executable, "-IS", "-c", program], "", None)
    assert ended(stream) == status
    assert stream.why().endswith(reason)
    assert stream.why().startswith(f"exit status {status}: ")


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
