"""Runs whose files are damaged, whose disk is full, whose terminal is closed: none ends with other numbers.

All in this process; `make chaos` does the same to processes, at more random places. `half` is a run of the toy
experiment that was killed: it has rows up to step 12, and checkpoints of the steps 9 and 12.
"""

import errno
import io
import json
import os
import random
import re
import shutil
import signal
import sys

import pytest
from orbax.checkpoint import v1 as ocp

from experiments.core.errors import DamagedError, UsageError, in_one_line
from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from experiments.core.training import train
from tests.chaos.damages import DAMAGES
from tests.experiments.support import rows_without_seconds
from tests.experiments.toy import STREAM, STREAMED, Killed, killed_at, toy_config

NEWEST, BEFORE = "12", "9"
FIELDS = STREAM | {"eval_every": 2}


def run(workdir, recipe=STREAMED, **fields):
    train.run(recipe, toy_config(**FIELDS | fields), workdir)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run that nothing happened to."""
    workdir = tmp_path_factory.mktemp("whole") / "w"
    run(workdir)
    return rows_without_seconds(workdir)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("half") / "w"
    with pytest.raises(Killed):
        run(workdir, killed_at(15))
    assert sorted(path.name for path in (workdir / "checkpoints").iterdir()) == [NEWEST, BEFORE]
    assert metrics.read(workdir / "metrics.jsonl")[-1]["step"] == 12
    return workdir


@pytest.fixture
def copy(half, tmp_path):
    return shutil.copytree(half, tmp_path / "w")


def contents(workdir):
    """All files but the lock, which means nothing."""
    files = (path for path in workdir.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(workdir)): path.read_bytes() for path in files}


# A run goes on from the checkpoint before in one way, whatever was done to the last; `training/test_checkpoint.py` has
# what is noticed.
BACK = [damage for damage in DAMAGES if damage.said]
TRIED = [damage for damage in DAMAGES if damage not in BACK[1:]]


@pytest.mark.parametrize("damage", TRIED, ids=lambda damage: damage.name)
def test_damage_is_repaired_or_refused(copy, whole, capsys, damage):
    damage.act(copy, random.Random(0))
    before = contents(copy)
    if damage.refused:
        with pytest.raises(UsageError, match=re.escape(damage.refused)):
            run(copy)
        assert contents(copy) == before
        return
    run(copy)
    assert rows_without_seconds(copy) == whole
    out = capsys.readouterr().out
    assert damage.said in out
    if "damaged" in damage.said:
        assert f"the checkpoint of step {NEWEST} is damaged (" in out
        assert f"it is now {copy}/damaged-checkpoint-{NEWEST}\n" in out
        assert f"resuming after step {BEFORE}" in out


def test_missing_rows_are_noticed(copy):
    """Needs no checksum, which only a finished run has."""
    rows, config = metrics.read(copy / "metrics.jsonl"), toy_config(**FIELDS).to_dict()
    metrics.require_complete(copy, rows, config)
    for number in (0, 1, 2):
        with pytest.raises(DamagedError, match=f"line {number + 1} is of step .*, where the row of step {2 * number}"):
            metrics.require_complete(copy, rows[:number] + rows[number + 1 :], config)
    epochs = [{"epoch": epoch, "step": 7 * epoch} for epoch in (0, 1, 3)]
    with pytest.raises(DamagedError, match="line 3 is of epoch 3, where the row of epoch 2"):
        metrics.require_complete(copy, epochs, {"epochs": 5})


def test_damaged_json_says_what_to_do(copy):
    for name, content in {
        "config.json": b"[" * 10**5,
        "summary.json": b'{"state": "running"}',
    }.items():
        path = copy / name
        kept = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=rf"^{path} is damaged \(.*\): (put back|remove)"):
            run(copy)
        path.write_bytes(kept) if kept else path.unlink()


def test_summary_must_match_its_rows(copy, whole):
    run(copy)
    rows, summary = copy / "metrics.jsonl", copy / "summary.json"
    content, said = rows.read_bytes(), json.loads(summary.read_text())
    summary.unlink()
    run(copy)
    assert json.loads(summary.read_text()) == said
    assert rows_without_seconds(copy) == whole
    unsummed = {name: value for name, value in said.items() if name != "metrics_sha256"}
    less = b"".join(content.splitlines(keepends=True)[:-1])
    for lines, asked in ((less, said), (b"", said), (content, unsummed)):
        rows.write_bytes(lines)
        summary.write_text(json.dumps(asked))
        with pytest.raises(DamagedError, match=f"^{rows} is damaged"):
            run(copy)


def set_field(workdir, name, value):
    """In config.json, which then says that another run is there."""
    path = workdir / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))


def test_checkpoints_must_match_the_config(copy):
    set_field(copy, "noise", 0.2)
    before = contents(copy)
    with pytest.raises(UsageError, match=rf"checkpoints/{NEWEST} .*: config.noise \(saved 0.1, asked 0.2\)$"):
        run(copy, noise=0.2)
    assert contents(copy) == before


class Closed(io.StringIO):
    """A terminal that is gone."""

    def write(self, text):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_closed_terminal_lets_the_run_save(tmp_path, whole, monkeypatch):
    def hang_up():
        monkeypatch.setattr(sys, "stdout", Closed())
        for _ in range(2):  # the terminal, and its shell
            signal.raise_signal(signal.SIGHUP)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", sys.stdout)
        run(tmp_path / "w", killed_at(6, hang_up))
    assert not Workdir(tmp_path / "w").is_done()
    assert [path.name for path in (tmp_path / "w" / "checkpoints").iterdir()][-1:] != []
    run(tmp_path / "w")
    assert rows_without_seconds(tmp_path / "w") == whole


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def tensorstore(*_, **__):
    raise ValueError("RESOURCE_EXHAUSTED: Error writing w/checkpoints: No space left on device")


def test_full_disk_loses_nothing(copy, whole, monkeypatch, capsys):
    fsync = os.fsync
    for named in ("metrics.jsonl", "checkpoints", "SHA256", "summary.json"):

        def selective(descriptor, named=named):
            name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
            return full() if named in name else fsync(descriptor)

        with monkeypatch.context() as patch:
            if named == "checkpoints":
                patch.setattr(ocp, "save_checkpointables", tensorstore)
            else:
                patch.setattr(os, "fsync", selective)
            assert in_one_line(lambda: run(copy) or 0) == 1
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert "No space left on device; what was saved is intact" in err
        assert err.count("\n") == 1
    run(copy)
    assert rows_without_seconds(copy) == whole
