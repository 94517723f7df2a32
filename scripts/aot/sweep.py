"""Compiles operators for a chip, case by case, and keeps what came of each; what is known already is passed over.

That is what was compiled of the same code and, of another, the programs that are still the same.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax.stages import Lowered

from scripts import sections
from scripts.aot import compiled, operators, record
from scripts.aot.compiled import Refused, TooLarge
from scripts.aot.hardware import Slice
from scripts.aot.operators import Case
from scripts.aot.progress import Progress

_CODE = ("ops",)
_SAVE_SECONDS = 20.0
_ATTEMPTS = 2


def go(
    slice_: Slice,
    devices: Sequence[Any],
    chosen: Sequence[Case],
    path: Path,
    command: Sequence[str],
    say: Callable[[str], None],
    *,
    anew: bool,
) -> int:
    """Compiles them for the first of the devices, or eight of them; returns how many fail."""
    code = record.digest(*_CODE)
    document = sections.read(path, "operators") or {}
    rows: dict[str, dict[str, Any]] = document.get("cases", {})
    known = [] if anew else [case for case in chosen if record.is_of(rows.get(case.key), slice_, code)]
    todo = [case for case in chosen if case not in set(known)]
    if known:
        say(f"{len(known)} of {len(chosen)} are in {path} already, of this code and these versions (--anew: again)")
    progress, saved = Progress([_guess(case, rows) for case in todo]), time.monotonic()
    header = record.header(slice_, command, code)
    for case in todo:
        progress.begin(case.key)
        with _attempt(path.with_suffix(".attempt"), case.key) as before:
            # One that has ended two processes, as a compiler may, is left at that, and the others go on.
            ended = {"compiles": False, "error": "the compiler ended the process"}
            earlier = rows.get(case.key) if not anew and record.is_by(rows.get(case.key), slice_) else None
            row = _named(case) | ended if before >= _ATTEMPTS else measure(case, slice_, devices, earlier)
        rows[case.key] = row | {"code": code, "compilers": record.compilers(slice_)}
        say(progress.end(_summary(row)))
        if time.monotonic() - saved > _SAVE_SECONDS or case is todo[-1] or not row["compiles"]:
            sections.write(path, header | {"cases": {key: rows[key] for key in sorted(rows)}}, "operators")
            saved = time.monotonic()
    return sum(not rows[case.key]["compiles"] for case in chosen)


def _guess(case: Case, rows: Mapping[str, Mapping[str, Any]]) -> float:
    """Seconds: to trace a program that may still be the same, or to compile one that is not there, by its operator."""
    if case.key in rows:
        return max(0.1, rows[case.key].get("traced_seconds", 1.0))
    like = [row["compile_seconds"] for row in rows.values() if row.get("operator") == case.operator and row["compiles"]]
    return max(1.0, sum(like) / len(like)) if like else 10.0


@contextlib.contextmanager
def _attempt(path: Path, key: str) -> Iterator[int]:
    """How often a process has ended within this, for this key; while inside, a file says that one is at it."""
    name, _, number = (path.read_text() if path.exists() else "").rpartition(" ")
    before = int(number) if name == key else 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{key} {before + 1}")
    try:
        yield before
    finally:
        path.unlink(missing_ok=True)


def _named(case: Case) -> dict[str, Any]:
    size = case.size
    return {
        "operator": case.operator,
        "rows": size.rows,
        "n": size.n,
        "k": size.k,
        "dtype": case.dtype,
        "mode": case.mode,
        "divided": case.divided,
    }


def measure(case: Case, slice_: Slice, devices: Sequence[Any], earlier: dict[str, Any] | None = None) -> dict[str, Any]:
    """The row of a case; the `earlier` one, if that is of the same program."""
    size, row = case.size, _named(case)
    start = time.perf_counter()
    try:
        lowered = _lowered(case, devices)
        traced = time.perf_counter() - start
        program = record.program(lowered)
        if earlier and earlier.get("program") == program:
            return earlier
        row["program"] = program
        done = compiled.compile_(lowered, slice_.device.platform)
    except TooLarge as error:
        need = f"needs {error.needed / 1e9:.1f} GB of {error.available / 1e9:.1f}"
        return row | {"compiles": False, "error": need}
    except Refused as error:
        return row | {"compiles": False, "error": str(error)}
    inside = done.contents
    parts = operators.PARTS if case.divided else 1
    data = size.rows * size.n * (4 if case.dtype == "float32" else 2) / parts
    return row | {
        "compiles": True,
        "traced_seconds": round(traced, 2),
        "compile_seconds": round(done.seconds, 2),
        "temporary_bytes": done.memory.temporary,
        "temporary_over_data": round(done.memory.temporary / data, 3),
        "kernels_outside_loops": inside.outside.kernels,
        "passes_outside_loops": round(inside.outside.touched / data, 3),
        "main_memory_passes_outside_loops": round(inside.outside.bytes / data, 3),
        "loops": [
            {
                "rounds": part.rounds,
                "inside": len(part.parents),
                "kernels": part.kernels,
                "passes": round(part.touched / data, 3),
                "main_memory_passes": round(part.bytes / data, 3),
                "host": part.host,
            }
            for part in inside.loops
        ],
        "sorts": sum(part.sorts for part in inside.parts),
        "gathers": sum(part.gathers for part in inside.parts),
        "host_round_trips_outside_loops": inside.outside.host,
        "collectives": inside.collectives(1.0),
    }


def _lowered(case: Case, devices: Sequence[Any]) -> Lowered:
    try:
        return operators.lower(case, devices)
    except Exception as error:  # whatever an operator does that such devices cannot: a failure like the compiler's
        raise Refused(
            f"not traced: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error


def _summary(row: dict[str, Any]) -> str:
    if not row["compiles"]:
        return f"FAILS: {row['error'][:160]}"
    rounds = ", ".join(f"{loop['kernels']} in a round" for loop in row["loops"] if loop["rounds"] is None)
    return (
        f"{row['compile_seconds']:.1f} s; {row['kernels_outside_loops']} kernels{f', {rounds}' if rounds else ''}; "
        f"temporary {row['temporary_over_data']:.2f} of the data"
    )
