"""The command that breaks runs, on one that takes no time: it sees whether they end with the same rows or not."""

import json
import os
import random
import signal
import sys

import pytest

from scripts.chaos import __main__ as chaos
from scripts.chaos import damages
from scripts.chaos.command import TrainingCommand

# Twenty rows, and at the end a summary. A sound run begins anew; the other goes on behind what is there.
TRAINING = """
import json, os, pathlib, signal, sys, time
workdir, sound = pathlib.Path(sys.argv[1]), sys.argv[2] == "sound"
(workdir / "checkpoints").mkdir(parents=True, exist_ok=True)
stopped = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: stopped.append(signal.Signals(number).name))
path = workdir / "metrics.jsonl"
first = 0 if sound or not path.exists() else len(path.read_bytes().splitlines())
with path.open("w" if sound else "a") as file:
    for step in range(first, 20):
        loss = step - first if first > 5 else step
        print(json.dumps({"step": step, "seconds": time.time(), "loss": [loss]}), file=file, flush=True)
        time.sleep(0.002)
        if stopped:
            print(f"stopped by {stopped[0]}")
            sys.exit()
(workdir / "summary.json").write_text('{"state": "done"}')
"""


def make(tmp_path, kind, kills=6):
    command = lambda workdir: [sys.executable, "-IS", "-c", TRAINING, str(workdir), kind]  # noqa: E731
    return chaos.make(TrainingCommand(command, os.environ, tmp_path), tmp_path, kills, 0, [])


def test_runs_that_end_with_the_same_rows_are_as_they_should_be(tmp_path, capsys):
    assert make(tmp_path, "sound") == 0
    out = capsys.readouterr().out
    assert "[6/9] killed " in out
    assert "the run is done: the same rows" in out
    assert out.endswith(f" as it should be, with seed 0: {tmp_path / 'report.json'}\n")
    report = json.loads((tmp_path / "report.json").read_text())
    assert sum(case["times"] for case in report["cases"] if case["happened"].startswith("killed ")) == 6


def test_what_is_started_heeds_signals_that_the_command_ignores(tmp_path):
    code = "import signal; print([signal.getsignal(n) == signal.SIG_IGN for n in (1, 2, 15)])"
    run = TrainingCommand(lambda workdir: [sys.executable, "-IS", "-c", code], os.environ, tmp_path)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run.finish(tmp_path).out == "[False, False, False]\n"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_one_that_ends_with_others_is_told_and_fails(tmp_path, capsys):
    assert make(tmp_path, "unsound", kills=12) == 1
    out, err = capsys.readouterr()
    assert "the run is done: " in out
    assert " differs" in out
    assert "otherwise than it should be, with seed 0" in err


def test_every_damage_changes_a_file_of_a_run(tmp_path):
    content = b'{"epoch": 1, "train_loss": [2.2512, 2.3]}\n'
    for number, damage in enumerate(damages.DAMAGES):
        workdir = tmp_path / str(number)
        for step in ("2", "4"):
            for name in ("_CHECKPOINT_METADATA", "SHA256SUMS", "state/_METADATA", "state/d/data", "interval/metadata"):
                path = workdir / "checkpoints" / step / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"some content\n" * len(name))
        (workdir / "metrics.jsonl").write_bytes(content * 9)
        for name in ("config.json", "environment.json"):
            (workdir / name).write_text("{}")
        before = damages._contents(workdir)
        damage.act(workdir, random.Random(0))
        assert damages._contents(workdir) != before, damage.name


def test_damages_of_no_such_name_are_refused_before_anything_is_removed(tmp_path, capsys):
    (tmp_path / ".chaos").touch()
    with pytest.raises(SystemExit) as exited:
        chaos.main([f"--out={tmp_path}", "--kills=0", "--only=no such damage"])
    assert exited.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "--only=no such damage is not allowed: it must be part of one of " in said
    assert all(damage.name in said for damage in damages.DAMAGES)
    assert (tmp_path / ".chaos").exists()


def test_what_another_has_made_is_not_removed(tmp_path, capsys):
    (tmp_path / "precious").touch()
    with pytest.raises(SystemExit):
        chaos.main([f"--out={tmp_path}"])
    assert "holds what this command has not made" in capsys.readouterr().err
    assert (tmp_path / "precious").exists()
