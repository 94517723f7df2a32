"""How far runs are, told from workdirs of which some files are damaged."""

import json
import os
import platform

import pytest

from experiments.core.errors import DamagedError
from scripts.launch import state
from scripts.launch.training import Training


@pytest.fixture
def training(tmp_path):
    for name, content in {
        "config.json": {"epochs": 4},
        "metrics.jsonl": {"epoch": 0, "step": 0},
        "summary.json": {"state": "done"},
    }.items():
        (tmp_path / name).write_text(json.dumps(content) + "\n")
    return Training("", "mnist_pruning", "configs/mnist_pruning.py", str(tmp_path))


def test_a_run_is_done_by_what_its_summary_says(training, tmp_path):
    assert state.read(training).word == state.DONE
    (tmp_path / "summary.json").write_text("{")
    found = state.read(training)
    assert (found.word, found.reached) == (state.FAILED, "epoch 0/4")
    assert "summary.json is damaged (no JSON: " in found.reason


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_how_far_a_run_is_may_not_be_known(training, tmp_path, name):
    (tmp_path / name).write_text("{\n")
    assert state.read(training) == state.State(state.DONE, "")
    assert state.num_rows(training) == 1


def test_a_record_that_is_damaged_is_named(training, tmp_path):
    for content in ("{", "[]", '{"state": "running"}', '{"state": "running", "launcher": {}}'):
        (tmp_path / "launch.json").write_text(content)
        with pytest.raises(DamagedError, match=r"launch\.json is damaged \(.*\): remove it, if no launcher"):
            state.read_record(training)


def test_a_launcher_in_its_pause_keeps_others_out_and_a_dead_one_does_not(training, tmp_path):
    (tmp_path / "summary.json").unlink()
    for parent, held, word in ((os.getppid(), True, state.PAUSED), (2**22 + 1, False, state.TO_DO)):
        record = {"state": "paused", "reason": "no quota", "launcher": {"host": platform.node(), "pid": parent}}
        (tmp_path / "launch.json").write_text(json.dumps(record))
        assert (state.launcher_of(training) is not None) is held
        assert state.read(training) == state.State(word, "epoch 0/4", "no quota")


def test_a_run_whose_launcher_was_stopped_is_interrupted_until_it_is_done(training, tmp_path):
    state.record(training, state.INTERRUPTED, reason="it goes on")
    assert state.read(training).word == state.DONE
    (tmp_path / "summary.json").unlink()
    assert state.read(training) == state.State(state.INTERRUPTED, "epoch 0/4", "it goes on")
    assert state.launcher_of(training) is None
