"""How far runs are, told from workdirs of which some files are damaged."""

import json
import os
import platform

import pytest

from experiments.core.errors import DamagedError
from scripts.launch import state
from scripts.launch.training import Training

GONE = 2**22 + 1  # no process has this number


@pytest.fixture
def training(tmp_path):
    for name, content in {
        "config.json": {"epochs": 4},
        "metrics.jsonl": {"epoch": 0, "step": 0},
        "summary.json": {"state": "done"},
    }.items():
        (tmp_path / name).write_text(json.dumps(content) + "\n")
    return Training("", "mnist_pruning", "configs/mnist_pruning.py", str(tmp_path))


def test_summary_decides_if_a_run_is_done(training, tmp_path):
    assert state.read(training).word == state.DONE
    for name in ("config.json", "metrics.jsonl"):
        content = (tmp_path / name).read_text()
        (tmp_path / name).write_text("{\n")
        assert state.read(training) == state.State(state.DONE, "")
        assert state.reached(training) == (-1, "")
        (tmp_path / name).write_text(content)
    (tmp_path / "summary.json").write_text("{")
    found = state.read(training)
    assert (found.word, found.reached) == (state.FAILED, "epoch 0/4")
    assert "summary.json is damaged (no JSON: " in found.reason
    (tmp_path / "summary.json").unlink()
    for content in ("{", "[]"):
        (tmp_path / "launch.json").write_text(content)
        with pytest.raises(DamagedError, match=r"launch\.json is damaged \(.*\): remove it, if no launcher"):
            state.read(training)


@pytest.mark.parametrize(
    ("host", "pid", "recorded", "held", "word"),
    [
        (platform.node(), os.getppid(), state.RUNNING, True, state.RUNNING),
        ("elsewhere", 1, state.RUNNING, True, state.RUNNING),
        (platform.node(), GONE, state.RUNNING, False, state.TO_DO),
        (platform.node(), GONE, state.SUBMITTED, False, state.SUBMITTED),
        (platform.node(), os.getpid(), state.RUNNING, False, state.TO_DO),
    ],
    ids=["another lives", "elsewhere", "gone", "submitted", "this one"],
)
def test_living_launcher_holds_its_run(training, tmp_path, host, pid, recorded, held, word):
    (tmp_path / "summary.json").unlink()
    record = {"state": recorded, "reason": "no quota", "host": host, "pid": pid}
    (tmp_path / "launch.json").write_text(json.dumps(record))
    assert bool(state.holder(training)) is held
    assert state.read(training) == state.State(word, "epoch 0/4", "no quota")
