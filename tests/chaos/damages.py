"""What can happen to the files of a run, and how the run must take it."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.core.record.workdir import Workdir
from experiments.core.training.checkpoint import CHECKSUM


class Damage(NamedTuple):
    """Something done to the files of a run that is half done.

    Attributes:
      name: of it.
      act: does it to a workdir.
      refused: the file that a line must name which ends the run before anything is changed; empty: the run goes on.
      said: what a line must hold where it goes on.
    """

    name: str
    act: Callable[[Path, random.Random], Any]
    refused: str = ""
    said: str = ""


def _checkpoints(workdir: Path) -> list[Path]:
    """From the last to the first."""
    return sorted(Workdir(workdir).checkpoints.iterdir(), key=lambda path: -int(path.name))


def _files(checkpoint: Path) -> list[Path]:
    """From the largest to the smallest."""
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def _replace_row(workdir: Path, rng: random.Random, row: bytes) -> None:
    """Replaces a line in the midst of the metrics before the last checkpoint: later rows are trained again."""
    path = Workdir(workdir).metrics
    lines = path.read_bytes().splitlines(keepends=True)
    lines[rng.randrange(1, len(lines) // 3)] = row
    path.write_bytes(b"".join(lines))


def _append(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


_BACK = "is damaged ("
_NONE = "there is no checkpoint"

DAMAGES = (
    Damage(
        "checkpoint: a byte of any file flipped",
        lambda run, rng: _flip(rng.choice(_files(_checkpoints(run)[0])), rng),
        said=_BACK,
    ),
    Damage("checkpoint: the data cut short", lambda run, rng: _cut(_files(_checkpoints(run)[0])[0], rng), said=_BACK),
    Damage("checkpoint: the state missing", lambda run, rng: shutil.rmtree(_checkpoints(run)[0] / "state"), said=_BACK),
    Damage("checkpoint: its checksum missing", lambda run, rng: (_checkpoints(run)[0] / CHECKSUM).unlink(), said=_BACK),
    Damage(
        "both checkpoints: their checksums missing",
        lambda run, rng: [(path / CHECKSUM).unlink() for path in _checkpoints(run)],
        refused=_NONE,
    ),
    Damage(
        "both checkpoints: a byte flipped",
        lambda run, rng: [_flip(_files(path)[0], rng) for path in _checkpoints(run)],
        refused="no checkpoint in",
    ),
    Damage("both checkpoints missing", lambda run, rng: shutil.rmtree(run / "checkpoints"), refused=_NONE),
    Damage(
        "metrics.jsonl: garbage in a line",
        lambda run, rng: _replace_row(run, rng, rng.randbytes(50).replace(b"\n", b" ") + b"\n"),
        refused="metrics.jsonl",
    ),
    Damage("metrics.jsonl: a row missing", lambda run, rng: _replace_row(run, rng, b""), refused="metrics.jsonl"),
    Damage("metrics.jsonl: missing", lambda run, rng: (run / "metrics.jsonl").unlink(), refused="metrics.jsonl"),
    Damage(
        "metrics.jsonl: the last row unfinished", lambda run, rng: _append(run / "metrics.jsonl", b'{"epoch": 33, "st')
    ),
    Damage("config.json: {", lambda run, rng: (run / "config.json").write_bytes(b"{"), refused="config.json"),
    Damage("config.json: missing", lambda run, rng: (run / "config.json").unlink(), refused="config.json"),
    Damage(
        "environment.json: {",
        lambda run, rng: (run / "environment.json").write_bytes(b"{"),
        refused="environment.json",
    ),
    Damage("environment.json: missing", lambda run, rng: (run / "environment.json").unlink()),
    Damage("summary.json: {", lambda run, rng: (run / "summary.json").write_bytes(b"{"), refused="summary.json"),
)
