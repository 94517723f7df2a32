"""What can happen to the files of a run, and how the run must take it."""

import dataclasses
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from experiments.core.record.workdir import Workdir
from experiments.core.training.checkpoint import CHECKSUM

Act = Callable[[Path, random.Random], None]


@dataclasses.dataclass(frozen=True)
class Damage:
    """Something done to the files of a run that is half done.

    Attributes:
      name: of it.
      act: does it.
      refused: the file that a line must name which ends the run before anything is changed; empty: the run goes on.
      said: what a line must hold where it goes on.
    """

    name: str
    act: Act
    refused: str = ""
    said: str = ""


def _newest(workdir: Path) -> Path:
    """The last checkpoint."""
    return max(Workdir(workdir).checkpoints.iterdir(), key=lambda path: int(path.name))


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def _largest(checkpoint: Path) -> Path:
    return max(_files(checkpoint), key=lambda path: path.stat().st_size)


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _flip_any(workdir: Path, rng: random.Random) -> None:
    _flip(rng.choice(_files(_newest(workdir))), rng)


def _cut(workdir: Path, rng: random.Random) -> None:
    path = _largest(_newest(workdir))
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def _lose(*names: str) -> Act:
    """Removes parts of the last checkpoint."""

    def act(workdir: Path, rng: random.Random) -> None:
        for name in names:
            path = _newest(workdir) / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return act


def _flip_all(workdir: Path, rng: random.Random) -> None:
    for checkpoint in Workdir(workdir).checkpoints.iterdir():
        _flip(_largest(checkpoint), rng)


def _lose_checksums(workdir: Path, rng: random.Random) -> None:
    for checkpoint in Workdir(workdir).checkpoints.iterdir():
        (checkpoint / CHECKSUM).unlink()


def _lose_checkpoints(workdir: Path, rng: random.Random) -> None:
    shutil.rmtree(Workdir(workdir).checkpoints)


def _row(change: Callable[[list[bytes], int, random.Random], None]) -> Act:
    """Changes the lines of the metrics file at one in their midst."""

    def act(workdir: Path, rng: random.Random) -> None:
        path = Workdir(workdir).metrics
        lines = path.read_bytes().splitlines(keepends=True)
        # Before the last checkpoint: later rows are trained again.
        change(lines, rng.randrange(1, len(lines) // 3), rng)
        path.write_bytes(b"".join(lines))

    return act


def _garbage(lines: list[bytes], at: int, rng: random.Random) -> None:
    lines[at] = rng.randbytes(50).replace(b"\n", b" ") + b"\n"


def _lose_row(lines: list[bytes], at: int, rng: random.Random) -> None:
    del lines[at]


def _unfinished_row(workdir: Path, rng: random.Random) -> None:
    with Workdir(workdir).metrics.open("ab") as file:
        file.write(b'{"epoch": 33, "st')


def _write(name: str, content: bytes) -> Act:
    def act(workdir: Path, rng: random.Random) -> None:
        (workdir / name).write_bytes(content)

    return act


def _remove(name: str) -> Act:
    def act(workdir: Path, rng: random.Random) -> None:
        (workdir / name).unlink()

    return act


_BACK = "is damaged ("
_CHECKPOINTS = "no checkpoint in"

DAMAGES = (
    Damage("checkpoint: a byte of any file flipped", _flip_any, said=_BACK),
    Damage("checkpoint: the data cut short", _cut, said=_BACK),
    Damage("checkpoint: the state missing", _lose("state"), said=_BACK),
    Damage("checkpoint: its checksum missing", _lose(CHECKSUM), said=_BACK),
    Damage("both checkpoints: their checksums missing", _lose_checksums, refused="there is no checkpoint"),
    Damage("both checkpoints: a byte flipped", _flip_all, refused=_CHECKPOINTS),
    Damage("both checkpoints missing", _lose_checkpoints, refused="there is no checkpoint"),
    Damage("metrics.jsonl: garbage in a line", _row(_garbage), refused="metrics.jsonl"),
    Damage("metrics.jsonl: a row missing", _row(_lose_row), refused="metrics.jsonl"),
    Damage("metrics.jsonl: missing", _remove("metrics.jsonl"), refused="metrics.jsonl"),
    Damage("metrics.jsonl: the last row unfinished", _unfinished_row),
    Damage("config.json: {", _write("config.json", b"{"), refused="config.json"),
    Damage("config.json: missing", _remove("config.json"), refused="config.json"),
    Damage("environment.json: {", _write("environment.json", b"{"), refused="environment.json"),
    Damage("environment.json: missing", _remove("environment.json")),
    Damage("summary.json: {", _write("summary.json", b"{"), refused="summary.json"),
)
