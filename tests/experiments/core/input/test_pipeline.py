"""Batches on the host: a pure function of seed, step and row, whoever makes them; workers that end."""

import gc
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import ml_collections
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import pipeline
from experiments.core.input.examples import InMemory
from experiments.core.input.stream import epoch_indices
from tests.experiments import tiny_tfds
from tests.experiments.support import ROOT, is_running, start, wait_for_end

ROWS = np.arange(48)


@pytest.fixture(scope="module")
def examples():
    """100 images that their label identifies."""
    rng = np.random.default_rng(0)
    return InMemory(
        {"image": rng.integers(0, 256, (100, 12, 12, 3), np.uint8), "label": np.arange(100, dtype=np.int32)}
    )


def _config(**fields) -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict({"batch_size": 48, "eval_batch_size": 32, "seeds": (0,), "steps": 5})
    config.input = {"recipe": "inception", "size": 12, "augment_on": "host", "workers": 0, "prefetch": 2} | fields
    return config


def _make(examples, *, seed=3, rows=ROWS, **fields):
    return pipeline.stream(_config(**fields), examples, train=True).open(seed, rows)


def _assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture(scope="module")
def uninterrupted(examples):
    """Six batches, over three epochs."""
    batches = _make(examples)
    made = [batches.batch(step) for step in range(6)]
    batches.close()
    return made


def test_batches_follow_the_epoch_order(examples, uninterrupted):
    for epoch in range(3):
        order = epoch_indices(3, epoch, 100, 48)
        for i in range(2):
            batch = uninterrupted[2 * epoch + i]
            np.testing.assert_array_equal(batch["label"], order[i])
            assert batch["label"].dtype == np.int32
            assert (batch["image"].shape, batch["image"].dtype) == ((48, 12, 12, 3), np.uint8)
    plain = _make(examples, recipe="none").batch(5)
    np.testing.assert_array_equal(plain["image"], examples.arrays["image"][plain["label"]])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells processes apart by /proc")
def test_workers_make_the_same_batches(examples, uninterrupted, capfd):
    """Workers leave signals to their program."""
    batches = _make(examples, workers=2)
    _assert_same(batches.batch(0), uninterrupted[0])
    workers = [child.pid for child in multiprocessing.active_children()]
    assert len(workers) == 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for worker in workers:
            os.kill(worker, number)
    for step in range(1, 6):
        _assert_same(batches.batch(step), uninterrupted[step])
    assert all(map(is_running, workers))
    batches.close()
    assert wait_for_end(workers) == []
    assert capfd.readouterr() == ("", "")


def test_hosts_make_parts_of_same_batches(examples, uninterrupted):
    hosts = [_make(examples, rows=rows) for rows in (np.arange(0, 40), np.arange(40, 48))]
    for step in range(3):
        parts = [host.batch(step) for host in hosts]
        _assert_same({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, uninterrupted[step])


def test_batches_may_be_asked_in_any_order(examples, uninterrupted):
    batches = _make(examples)
    for step in (4, 5, 0, 0, 1, 3, 2):
        _assert_same(batches.batch(step), uninterrupted[step])
    batches.close()
    _assert_same(batches.batch(1), uninterrupted[1])


def test_seeds_steps_and_rows_draw_anew():
    image = np.random.default_rng(0).integers(0, 256, (1, 60, 60, 3), np.uint8)
    same = InMemory({"image": np.tile(image, (48, 1, 1, 1)), "label": np.zeros(48, np.int32)})
    images = [_make(same, seed=seed).batch(step)["image"] for seed in (0, 1) for step in (0, 1)]
    different = {image.tobytes() for batch in images for image in batch}
    assert len(different) > 0.95 * 4 * 48


def test_evaluation_shows_each_example_once(examples):
    stream = pipeline.stream(_config(recipe="none"), examples, train=False)
    batches = stream.open(0, np.arange(32))
    for _ in range(2):
        made = [batches.batch(step) for step in range(4)]
        together = {name: np.concatenate([batch[name] for batch in made])[: stream.num_examples] for name in made[0]}
        _assert_same(together, examples.arrays)
    with pytest.raises(IndexError, match="step 4 of 4"):
        batches.batch(4)
    batches.close()


def test_worker_errors_reach_the_caller(examples):
    broken = InMemory(examples.arrays | {"image": examples.arrays["image"][:50]})
    batches = _make(broken, workers=1)
    with pytest.raises(IndexError, match="out of bounds"):
        batches.batch(0)
    batches.close()


def test_host_augmentation_is_validated():
    config = _config()
    config.eval_batch_size = 0
    with pytest.raises(UsageError, match=r"config\.eval_batch_size=0 .* positive where input\.augment_on='host'"):
        pipeline.validate(config)
    config.eval_batch_size, config.seeds = 32, (0, 1)
    with pytest.raises(UsageError, match=r"config\.seeds=\(0, 1\) .* single one where input\.augment_on='host'"):
        pipeline.validate(config)


# A program that streams from files, with a worker, and reports on itself.
_PROGRAM = """
import json, multiprocessing, sys, time
import numpy as np
from experiments.core.input import pipeline, sources

if __name__ == "__main__":
    examples = sources.from_tfds("photos", sys.argv[1], download=False).train
    job = pipeline.Job(examples, "big_vision", 8, 4, seed=0)
    batches = pipeline.Batches(job, np.arange(4), workers=1, prefetch=1)
    labels = [batches.batch(step)["label"].tolist() for step in range(3)]
    workers = [child.pid for child in multiprocessing.active_children()]
    tensorflow = [name for name in sys.modules if name.split(".")[0] == "tensorflow"]
    print(json.dumps({"labels": labels, "workers": workers, "tensorflow": tensorflow}), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells processes apart by /proc")
def test_workers_end_when_program_is_killed(tmp_path):
    gc.collect()  # TFDS stands in for modules while it is imported, and what is collected then cannot be reported
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (9 + i, 12, 3), np.uint8) for i in range(8)]
    tiny_tfds.write(tmp_path, "photos", {"train": (images, np.arange(8)), "test": (images, np.arange(8))}, varied=True)
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    process = start(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    report = json.loads(process.stdout.readline())
    assert report["labels"] == [epoch_indices(0, epoch, 8, 4)[i].tolist() for epoch, i in ((0, 0), (0, 1), (1, 0))]
    assert report["tensorflow"] == []
    (worker,) = report["workers"]
    assert is_running(worker)
    process.kill()
    process.communicate(timeout=600)
    assert wait_for_end([worker]) == []
