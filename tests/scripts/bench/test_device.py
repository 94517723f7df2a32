import itertools
import json
import subprocess
import types

import pytest

from experiments.core.errors import DamagedError
from experiments.vmoe import experiment
from scripts.bench import device, record, router
from scripts.bench.device import Piece

PIECES = (
    Piece("one", ("--seconds=9",), ("--seconds=1",), 4.0, "one"),
    Piece("", ("--peers=",), ("--quick",), 5.0, "masks"),
)
ENVIRONMENT = {
    "code": "abc",
    "packages": {"jax": "1"},
    "devices": {"platform": "gpu", "kind": "NVIDIA H200"},
    "machine": {"cpu": None, "cores": 2},
    "git": {"commit": "abc", "dirty": False},
}


@pytest.fixture
def started(monkeypatch):
    """The commands that would have run; each ends with the status or the error in `statuses`, 0 if it is not there."""
    commands, statuses = [], {}

    def run(command, check, timeout):
        commands.append(command[2:])
        if isinstance(statuses.get(command[2]), BaseException):
            raise statuses[command[2]]
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
    assert "failed: scripts.bench.one (" in capsys.readouterr().out


def test_a_piece_that_fails_is_begun_again_while_its_record_grows(started, monkeypatch, tmp_path):
    commands, _ = started
    path = tmp_path / "gpu-nvidia-h200.json"

    def run(command, check, timeout):
        commands.append(command[2:])
        cases = [{}] * min(2, len(commands))
        path.write_text(json.dumps({"one": {"complete": False, "cases": cases}}))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(device.subprocess, "run", run)
    assert device.main([f"--results={tmp_path}"], PIECES[:1]) == 1
    assert len(commands) == 3  # the third finds nothing new


def test_a_piece_is_passed_over_once_its_record_is_of_this_code_and_command_and_complete(started, tmp_path, capsys):
    commands, _ = started
    path = tmp_path / "gpu-nvidia-h200.json"
    command = ["python", "-m", "scripts.bench.one", "--seconds=9", f"--results={tmp_path}"]

    def again(*options, name="one", complete=True, **changed):
        environment = ENVIRONMENT | {"command": command} | changed
        path.write_text(json.dumps({name: {"environment": environment, "complete": complete}, "other": {}}))
        commands.clear()
        assert device.main([f"--results={tmp_path}", *options], PIECES[:1]) == 0
        return len(commands)

    assert again() == 0
    assert "measured already" in capsys.readouterr().out
    assert again(git={"commit": "other", "dirty": True}) == 0  # what else is committed, or not, measures nothing else
    assert again("--again") == 1
    assert again(complete=False) == 1
    assert again(code="other") == 1
    assert again(packages={"jax": "2"}) == 1
    assert again(devices={"platform": "gpu", "kind": "NVIDIA H100"}) == 1
    assert again(command=[*command, "--batch_size=3"]) == 1
    assert again(command=[*command[:-1], "--results=elsewhere"]) == 0
    assert again(name="failed-one") == 0  # who fails is not tried again unasked
    assert again(name="two") == 1
    for damaged in ("{", "[]"):
        path.write_text(damaged)
        with pytest.raises(DamagedError, match=r"gpu-nvidia-h200\.json"):
            device.main([f"--results={tmp_path}"], PIECES[:1])


def test_no_piece_begins_that_would_end_too_late(started, monkeypatch, tmp_path, capsys):
    commands, _ = started
    clock = itertools.count(step=180.0)  # the first piece would end in minute 7, the second in minute 11
    monkeypatch.setattr(device, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    assert device.main([f"--results={tmp_path}", "--minutes=10"], PIECES) == 0
    assert [command[0] for command in commands] == ["scripts.bench.one"]
    assert "no time was left for scripts.bench: the same command goes on with it" in capsys.readouterr().out


def test_a_piece_that_no_command_of_so_many_minutes_could_do_says_how_many_it_needs(started, tmp_path, capsys):
    assert device.main([f"--results={tmp_path}", "--minutes=4.5"], PIECES) == 0
    assert "no time was left for scripts.bench: it needs MINUTES=5 (--minutes=5)\n" in capsys.readouterr().out


def test_a_piece_that_takes_far_too_long_is_ended_and_the_next_one_runs(started, tmp_path, capsys):
    commands, statuses = started
    statuses["scripts.bench.one"] = subprocess.TimeoutExpired("one", 480)
    assert device.main([f"--results={tmp_path}"], PIECES) == 1
    assert [command[0] for command in commands] == ["scripts.bench.one", "scripts.bench"]
    said = capsys.readouterr().out
    assert "scripts.bench.one was ended after 8 minutes\n" in said
    assert "failed: scripts.bench.one (" in said


def test_an_interruption_ends_all_and_says_how_to_go_on(started, tmp_path, capsys):
    commands, statuses = started
    statuses["scripts.bench.one"] = KeyboardInterrupt()
    assert device.main([f"--results={tmp_path}"], PIECES) == 130
    assert len(commands) == 1
    assert "stopped in scripts.bench.one: the same command goes on with it\n" in capsys.readouterr().out


@pytest.mark.parametrize("small", [False, True])
def test_a_cpu_is_refused_unless_shapes_are_small(started, monkeypatch, tmp_path, capsys, small):
    commands, _ = started
    devices = {"platform": "cpu", "kind": "cpu"}
    monkeypatch.setattr(device, "_environment", lambda: ENVIRONMENT | {"devices": devices})
    results = tmp_path / "results"
    assert device.main([f"--results={results}", *["--small"] * small], PIECES) == int(not small)
    assert len(commands) == (2 if small else 0)
    assert results.exists() == small
    refused = capsys.readouterr().err
    assert refused.startswith(
        "" if small else "error: JAX finds a CPU only, on which this takes hours: wanted is a GPU"
    )
    assert refused.count("\n") == int(not small)


def test_small_routers_have_tokens_for_all_their_slots():
    (small,) = (piece.small for piece in device.PIECES if piece.module == "router")
    (size,) = (int(option.removeprefix("--size=")) for option in small if option.startswith("--size="))
    for name in router.ROUTERS:
        shape = experiment.routing_shape(router.config_of(name, size))
        assert max(shape.k, shape.capacity) <= shape.tokens


def test_pieces_are_benchmarks_and_write_the_records_that_are_looked_for(tmp_path):
    for piece in device.PIECES:
        module = __import__(".".join(filter(None, ("scripts.bench", piece.module or "__main__"))), fromlist=["main"])
        assert callable(module.main)
        assert f"``{piece.record}`` of ``<results>/<hardware>.json``" in module.__doc__.replace("\n", " ")
    assert sum(piece.minutes for piece in device.PIECES) <= 20
    assert record.hardware_name(ENVIRONMENT) == "gpu-nvidia-h200"
