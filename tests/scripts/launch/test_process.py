"""Programs that are started: their ends, their last words, and the end of all of them."""

import sys
import threading
import time

import pytest

from experiments.core.errors import UsageError
from scripts.launch.process import Console, Failed, Stopped, error_line

PEER = "jax.errors.JaxRuntimeError: UNAVAILABLE: Connection closed by peer"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (["epoch 1/4 test_error 3.5", "[0] error: config.p=7", "##### worker 0 failed", PEER], "[0] error: config.p=7"),
        (["ERROR: (gcloud.compute) NOT_FOUND: no such TPU"], "ERROR: (gcloud.compute) NOT_FOUND"),
        (["0: epoch 1/4", "3: ValueError: a reason", "srun: error: node1: task 3: Exited", f"1: {PEER}"], "3: ValueE"),
        (["0: epoch 1/4", "slurmstepd: error: *** STEP 17.0 ON node1 CANCELLED DUE TO TIME LIMIT"], "slurmstepd: err"),
        (["epoch 1/4", ""], "epoch 1/4"),
        ([], "it said nothing"),
    ],
)
def test_the_reason_is_the_first_error(said, line):
    assert error_line("\n".join(said)).startswith(line)


def python(code):
    return [sys.executable, "-IS", "-c", code]


def test_answers_and_statuses_are_passed_on(tmp_path):
    console = Console()
    done = console.ask(python("import sys; print('é'); print('b', file=sys.stderr); sys.exit(7)"))
    assert (done.returncode, done.stdout, done.stderr) == (7, "é\n", "b\n")
    assert console.ask(python("import os; os.kill(os.getpid(), 9)")).returncode == 137
    with pytest.raises(UsageError, match="there is no program 'nonesuch' here"):
        console.ask(["nonesuch"])


def test_first_failed_program_is_named(tmp_path):
    (tmp_path / "bad.log").write_text("Error: of an earlier attempt\n")
    waits = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'ended')!r}): time.sleep(0.1)\ntime.sleep(1)"
    end = f"print('a\\nb'); open({str(tmp_path / 'ended')!r}, 'w'); raise SystemExit(7)"
    programs = {"later": python(f"{waits}\nraise SystemExit(8)"), "bad": python(end), "good": ["true"]}
    with pytest.raises(Failed, match=rf"^bad: exit status 7: b; log: {tmp_path}/bad.log$") as raised:
        Console().run(programs, tmp_path)
    assert (raised.value.status, raised.value.again) == (8, True)
    assert (tmp_path / "bad.log").read_text() == "Error: of an earlier attempt\na\nb\n"


@pytest.mark.parametrize(
    ("said", "again"),
    [("[0] error: config.p=7", False), ("error: --config=a.py", False), ("sh: 1: cannot open it", True)],
)
def test_only_named_mistakes_are_final(tmp_path, said, again):
    with pytest.raises(Failed) as failed:
        Console().run({"a": python(f"print({said!r}); raise SystemExit(2)")}, tmp_path)
    assert (failed.value.status, failed.value.again) == (2, again)


def test_tool_status_2_may_be_retried():
    for said, again in (
        ("error: Failed to fetch: no network", True),
        ("gcloud: error: unrecognized arguments: --a", False),
    ):
        with pytest.raises(Failed) as failed:
            Console().do(python(f"import sys; print({said!r}, file=sys.stderr); sys.exit(2)"))
        assert failed.value.again is again


def test_stop_ends_programs_and_starts_none(tmp_path):
    console, halted = Console(), []
    threading.Timer(0.5, console.stopping.set).start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        console.run({"a": ["sleep", "600"]}, tmp_path, lambda: halted.append(console.ask(["true"], last=True)))
    assert time.monotonic() - began < 300
    assert len(halted) == 1
    for start in (lambda: console.ask(["true"]), lambda: console.run({"a": ["true"]}, tmp_path)):
        with pytest.raises(Stopped):
            start()
    console = Console()
    threading.Timer(0.5, console.stopping.set).start()
    with pytest.raises(Stopped):
        console.ask(["sleep", "600"])
