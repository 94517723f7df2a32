"""All benchmarks that a GPU or TPU is worth, in pieces: ``python -m scripts.bench.device [--minutes=10] [--small]``.

Each piece is one of the other benchmarks, a process of its own, with settings for an accelerator. A piece whose record
is there already, of this commit, hardware and settings, is passed over, so a command that was stopped goes on with the
next piece; no piece is begun that would end later than ``--minutes`` from now. All take under 20 minutes on one GPU.
With ``--small`` every piece takes tiny shapes, to see on any machine that it works; its records are not kept.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.environment import Launch, describe
from scripts.bench import record

_MODULE = "scripts.bench.device"


@dataclasses.dataclass(frozen=True)
class Piece:
    """One benchmark.

    Attributes:
      module: below `scripts.bench`; "" is the comparison with peers itself.
      arguments: for an accelerator.
      small: for any machine.
      minutes: that it takes at most on a GPU, compilation and all.
      record: the beginning of its record's name, before the hardware.
    """

    module: str
    arguments: tuple[str, ...]
    small: tuple[str, ...]
    minutes: float
    record: str


PIECES = (
    Piece("traffic", ("--seconds=15",), ("--small", "--seconds=0.5"), 4.0, "traffic-"),
    Piece("steps", ("--seconds=20",), ("--seconds=0.5", "--steps=2"), 2.0, "steps-"),
    Piece(
        "router",
        ("--seconds=60", "--batch_size=1024"),
        ("--seconds=0.5", "--batch_size=8", "--size=32"),
        4.0,
        "router-",
    ),
    Piece(
        "losses",
        ("--seconds=60", "--batch_size=64"),
        ("--seconds=0.5", "--batch_size=2", "--size=32", "--variant=Ti/16"),
        4.0,
        "losses-",
    ),
    Piece("", ("--peers=jaxopt,entmax",), ("--quick", "--peers="), 6.0, ""),
)


def is_measured(path: Path, commit: str | None, command: Sequence[str]) -> bool:
    """Whether `path` is the record of this command at this commit, of code that had no other changes."""
    try:
        environment: dict[str, Any] = json.loads(path.read_text())["environment"]
    except (OSError, ValueError, KeyError):
        return False
    git = environment["git"]
    return commit is not None and git == {"commit": commit, "dirty": False} and environment["command"] == list(command)


def main(arguments: Sequence[str], pieces: Sequence[Piece] = PIECES) -> int:
    """Runs the command; 1 if a piece failed, 0 if all that there was time for ended well."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--minutes", type=float, default=25.0, help="no piece is begun that could end later")
    parser.add_argument("--small", action="store_true", help="tiny shapes: only whether all pieces work")
    parser.add_argument("--again", action="store_true", help="pieces that are measured, too")
    options = record.parse(parser, arguments, harmless=("minutes", "small", "again"))
    if options.small:
        with tempfile.TemporaryDirectory() as directory:
            return _run(options, pieces, Path(directory))
    options.results.mkdir(parents=True, exist_ok=True)
    return _run(options, pieces, options.results)


def _run(options: argparse.Namespace, pieces: Sequence[Piece], results: Path) -> int:
    # In a process of its own: while this one held the device, the pieces could not have it.
    environment = _environment()
    hardware, commit = record.hardware_name(environment), environment["git"]["commit"]
    print(f"{len(pieces)} pieces on {hardware}, at most {sum(piece.minutes for piece in pieces):g} minutes", flush=True)

    start, failed, left = time.monotonic(), [], []
    for number, piece in enumerate(pieces, 1):
        module = ".".join(filter(None, ("scripts.bench", piece.module)))
        asked = [*(piece.small if options.small else piece.arguments), f"--results={results}"]
        path = results / f"{piece.record}{hardware}.json"
        if not (options.small or options.again) and is_measured(path, commit, ["python", "-m", module, *asked]):
            print(f"[{number}/{len(pieces)}] {module}: measured already, in {path}", flush=True)
            continue
        passed = (time.monotonic() - start) / 60
        if passed + piece.minutes > options.minutes and not options.small:
            left.append(module)
            continue
        print(f"[{number}/{len(pieces)}] {module}, at most {piece.minutes:g} minutes", flush=True)
        if subprocess.run([sys.executable, "-m", module, *asked], check=False).returncode:
            failed.append(module)
    if left:
        print(f"no time was left for {', '.join(left)}: the same command goes on with it")
    if failed:
        print(f"failed: {', '.join(failed)}")
    print("all pieces were tried" if options.small else f"results are in {results}")
    return int(bool(failed))


def _environment() -> dict[str, Any]:
    code = f"import json; from {_MODULE} import here; print(json.dumps(here()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def here() -> dict[str, Any]:
    """What records say of code and hardware."""
    return describe(Launch())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
