import json
import subprocess

import pytest

from scripts.bench import device, record
from scripts.bench.device import Piece

PIECES = (
    Piece("one", ("--seconds=9",), ("--seconds=1",), 4.0, "one-"),
    Piece("", ("--peers=",), ("--quick",), 5.0, ""),
)
ENVIRONMENT = {
    "devices": {"platform": "gpu", "kind": "NVIDIA H200"},
    "machine": {"cpu": None, "cores": 2},
    "git": {"commit": "abc", "dirty": False},
}


@pytest.fixture
def started(monkeypatch):
    """The commands that would have run; each ends with the status in `statuses`, 0 if it is not there."""
    commands, statuses = [], {}

    def run(command, check):
        commands.append(command[2:])
        return subprocess.CompletedProcess(command, statuses.get(command[2], 0))

    monkeypatch.setattr(device.subprocess, "run", run)
    monkeypatch.setattr(device, "_environment", lambda: ENVIRONMENT)
    return commands, statuses


def test_every_piece_runs_and_those_that_failed_are_named(started, tmp_path, capsys):
    commands, statuses = started
    statuses["scripts.bench.one"] = 1
    assert device.main([f"--results={tmp_path}"], PIECES) == 1
    assert commands == [
        ["scripts.bench.one", "--seconds=9", f"--results={tmp_path}"],
        ["scripts.bench", "--peers=", f"--results={tmp_path}"],
    ]
    assert "failed: scripts.bench.one\n" in capsys.readouterr().out


def test_a_piece_is_passed_over_once_its_record_is_of_this_code_and_command(started, tmp_path, capsys):
    commands, _ = started
    path = tmp_path / "one-gpu-nvidia-h200.json"
    command = ["python", "-m", "scripts.bench.one", "--seconds=9", f"--results={tmp_path}"]

    def again(**changed):
        path.write_text(json.dumps({"environment": ENVIRONMENT | {"command": command} | changed}))
        commands.clear()
        assert device.main([f"--results={tmp_path}"], PIECES[:1]) == 0
        return len(commands)

    assert again() == 0
    assert "measured already" in capsys.readouterr().out
    assert again(git={"commit": "other", "dirty": False}) == 1
    assert again(git={"commit": "abc", "dirty": True}) == 1
    assert again(command=[*command, "--batch_size=3"]) == 1
    path.write_text("{")
    assert device.main([f"--results={tmp_path}"], PIECES[:1]) == 0
    assert len(commands) == 2


def test_no_piece_begins_that_would_end_too_late(started, tmp_path, capsys):
    commands, _ = started
    assert device.main([f"--results={tmp_path}", "--minutes=4.5"], PIECES) == 0
    assert [command[0] for command in commands] == ["scripts.bench.one"]
    assert "no time was left for scripts.bench: the same command goes on with it" in capsys.readouterr().out


def test_pieces_are_benchmarks_and_write_the_records_that_are_looked_for(tmp_path):
    for piece in device.PIECES:
        module = __import__(".".join(filter(None, ("scripts.bench", piece.module or "__main__"))), fromlist=["main"])
        assert callable(module.main)
        if piece.record:
            assert piece.record.removesuffix("-") in module.__doc__.split("<results>/")[1]
    assert sum(piece.minutes for piece in device.PIECES) <= 20
    assert record.hardware_name(ENVIRONMENT) == "gpu-nvidia-h200"
