"""All benchmarks that a GPU or TPU is worth, in pieces: ``python -m scripts.bench.device [--minutes=10] [--small]``.

Each piece is one of the other benchmarks, a process of its own, with settings for an accelerator. A piece whose record
is there already, complete, and of the same code, versions, hardware and settings, is passed over, and two of them write
theirs after each shape: a command that was stopped goes on where it was. No piece is begun that would end later than
``--minutes`` from now, and one that takes more than twice its time is ended. All take under 20 minutes on one GPU. With
``--small`` every piece takes tiny shapes, to see on any machine that it works; its records are kept nowhere, unless
``--results`` says where.

Where there is no package index, and so no ``make bench-gpu``, ``python -m scripts.bench.device`` needs Python 3.11 or
newer, jax for the device, flax, optax, ml_collections, etils, absl, msgpack, fsspec, pillow and scipy; peers that are
not there are left out.
"""

import argparse
import dataclasses
import functools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.core import console
from scripts import sections
from scripts.bench import record

_MODULE = "scripts.bench.device"
_FINDING = 120  # seconds, for JAX to find the device
_PATIENCE = 2.0  # times the minutes of a piece, until it is ended
_WANTED = (
    "wanted is a GPU or TPU, with a driver that works (nvidia-smi) and JAX for it (make bench-gpu JAX=cuda13, or tpu); "
    "--small tries every piece on any machine"
)


@dataclasses.dataclass(frozen=True)
class Piece:
    """One benchmark.

    Attributes:
      module: below `scripts.bench`; "" is the comparison with peers itself.
      arguments: for an accelerator.
      small: for any machine.
      minutes: that it takes at most on a GPU, compilation and all.
      record: the section that it writes, or how the names of several begin.
    """

    module: str
    arguments: tuple[str, ...]
    small: tuple[str, ...]
    minutes: float
    record: str

    @property
    def name(self) -> str:
        """Of the module, in full."""
        return ".".join(filter(None, ("scripts.bench", self.module)))


PIECES = (
    Piece("traffic", ("--seconds=10",), ("--small", "--seconds=0.5"), 5.0, "traffic"),
    Piece("steps", ("--seconds=20",), ("--seconds=0.5", "--steps=2"), 1.5, "steps"),
    Piece(
        "router",
        ("--seconds=40", "--batch_size=1024"),
        ("--seconds=0.5", "--batch_size=8", "--size=64"),  # 32 tokens a group, as many as the slots
        3.0,
        "router",
    ),
    Piece(
        "losses",
        ("--seconds=30", "--batch_size=64"),
        ("--seconds=0.5", "--batch_size=2", "--size=32", "--variant=Ti/16"),
        2.0,
        "losses",
    ),
    Piece("", ("--peers=jaxopt,entmax",), ("--quick", "--peers="), 8.0, "masks"),
)


def main(arguments: Sequence[str], pieces: Sequence[Piece] = PIECES) -> int:
    """Runs the command; 1 if a piece failed, 0 if all that there was time for ended well."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--minutes", type=float, default=25.0, help="no piece is begun that could end later")
    parser.add_argument("--small", action="store_true", help="tiny shapes: only whether all pieces work")
    parser.add_argument("--again", action="store_true", help="pieces that are measured, too")
    options = record.parse(parser, arguments, harmless=("minutes", "small", "again"))
    start = time.monotonic()
    # In a process of its own: while this one held the device, the pieces could not have it.
    environment = _environment()
    if environment is None:
        return 1
    if environment["devices"]["platform"] == "cpu" and not options.small:
        print(f"error: JAX finds a CPU only, on which this takes hours: {_WANTED}", file=sys.stderr)
        return 1
    if options.small and options.results == record.RESULTS:
        with tempfile.TemporaryDirectory() as directory:
            return _run(options, pieces, Path(directory), environment, start)
    options.results.mkdir(parents=True, exist_ok=True)
    return _run(options, pieces, options.results, environment, start)


def _run(
    options: argparse.Namespace, pieces: Sequence[Piece], results: Path, environment: dict[str, Any], start: float
) -> int:
    hardware = record.hardware_name(environment)
    print(f"{len(pieces)} pieces on {hardware}, at most {sum(piece.minutes for piece in pieces):g} minutes", flush=True)

    failed: list[str] = []
    left: list[Piece] = []
    for number, piece in enumerate(pieces, 1):
        asked = [*(piece.small if options.small else piece.arguments), f"--results={results}"]
        wanted = environment | {"command": ["python", "-m", piece.name, *asked]}
        records = functools.partial(_records, record.path_of(results, environment), piece)
        if not options.again and any(record.is_complete(each, wanted) for each in records()):
            print(f"[{number}/{len(pieces)}] {piece.name}: measured already, in {results}", flush=True)
            continue
        passed = (time.monotonic() - start) / 60
        if passed + piece.minutes > options.minutes and not options.small:
            left.append(piece)
            continue
        print(f"[{number}/{len(pieces)}] {piece.name}, at most {piece.minutes:g} minutes on a GPU", flush=True)
        longest = None if options.small else min(_PATIENCE * piece.minutes, options.minutes - passed)
        try:
            ended_well = _ends_well(piece, asked, longest, records)
        except KeyboardInterrupt:
            print(f"stopped in {piece.name}: the same command goes on with it")
            return 130
        failed += [] if ended_well else [piece.name]
    if left:
        print(f"no time was left for {', '.join(piece.name for piece in left)}: {_advice(left, options.minutes)}")
    if failed:
        print(f"failed: {', '.join(failed)} (the same command goes on with what is not measured; --again tries anew)")
    print("all pieces were tried" if options.small else f"results are in {results}")
    return int(bool(failed))


def _records(path: Path, piece: Piece) -> list[dict[str, Any]]:
    """The records of a piece: of all it was to measure, or of what failed."""
    names = (piece.record, f"failed-{piece.record}")
    return [section for name, section in (sections.read(path) or {}).items() if name.startswith(names)]


def _ends_well(
    piece: Piece, asked: Sequence[str], minutes: float | None, records: Callable[[], Sequence[dict[str, Any]]]
) -> bool:
    """Whether a piece ends well, which is begun again while those that fail leave more and more in its records."""
    end, before = time.monotonic() + 60 * (minutes or math.inf), None
    while True:
        longest = None if minutes is None else max(1.0, end - time.monotonic())
        try:
            done = subprocess.run([sys.executable, "-m", piece.name, *asked], check=False, timeout=longest)
        except subprocess.TimeoutExpired:
            print(f"{piece.name} was ended after {minutes:g} minutes", flush=True)
            return False
        now = [record.progress(each) for each in records()]
        if not done.returncode or before == now or not any(now):
            return not done.returncode
        print(f"{piece.name} ended with status {done.returncode}: it goes on with what it has not measured", flush=True)
        before = now


def _advice(left: Sequence[Piece], minutes: float) -> str:
    longest = max(piece.minutes for piece in left)
    if longest <= minutes:
        return "the same command goes on with it"
    return f"it needs MINUTES={math.ceil(longest)} (--minutes={math.ceil(longest)})"


def _environment() -> dict[str, Any] | None:
    code = f"import json; from {_MODULE} import here; print(json.dumps(here()))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=_FINDING
        )
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1] if done.returncode else None
    except subprocess.TimeoutExpired:
        reason = f"no answer in {_FINDING} s"
    if reason:
        print(f"error: JAX finds no device ({reason}): {_WANTED}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def here() -> dict[str, Any]:
    """What records say of code and hardware."""
    return record.surroundings(_MODULE, ())


if __name__ == "__main__":
    console.run(main)
