"""One of two processes of a run is killed."""

import signal
import time

import pytest

from experiments.core.training import checkpoint
from tests.experiments.core.training.test_two_processes import two_processes
from tests.experiments.processes import ended, wait_for_rows


@pytest.mark.chaos
def test_killing_one_process_fails_the_other(tmp_path):
    workdir = tmp_path / "run"
    processes = two_processes(workdir)
    wait_for_rows(processes, workdir, 3)
    while not (workdir / "checkpoints" / "8" / checkpoint.CHECKSUM).exists():
        assert processes[0].poll() is None
        time.sleep(0.002)
    processes[1].kill()
    (status, _, err), (killed, _, _) = ended(processes, timeout=600)
    assert killed == -signal.SIGKILL
    assert status not in (0, -signal.SIGKILL)
    assert "Traceback" in err or "another task died" in err
