"""Compiles a program and reports its memory, largest arrays and collectives, or why the compiler refuses it.

Results are kept, each in a file named after the program's text, the type, the compiler's versions and the code that
reads its reports. The same program is not compiled again, whatever else has changed.
"""

import hashlib
import re
import time
from pathlib import Path
from typing import Any

from jax.stages import Lowered

from experiments.core.record.chips import Slice
from experiments.core.record.files import read_object, write_json
from scripts.compile import compiler, hlo

KEPT = compiler.ROOT / "runs" / "compiled"
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}
_SIZE = r"([\d.]+)([KMG]?)i?B?"
# Messages of TPU's compiler before it has placed any array, and after.
_EXCEEDED = re.compile(
    rf"required for [\w ]+ \({_SIZE}\) exceeds available HBM \({_SIZE}\)|Used {_SIZE} of {_SIZE} hbm"
)


class Refused(Exception):
    """The compiler refuses a program for another reason than memory, in a line."""


def outcome(lowered: Lowered, slice_: Slice, kept: Path | None = None) -> dict[str, Any]:
    """Compiles a program for a slice, unless its result is kept; all numbers are those of one device.

    Returns:
      `fits`; `needed` and `available` bytes; the `largest` arrays, those of all devices together if the compiler gives
      up for want of memory; and, unless it does, `memory` (bytes of `arguments`, of `results` that do not overwrite
      arguments, of `temporary` arrays and of `code`), `collectives` and the `seconds` that compilation took.

    Raises:
      Refused: the compiler fails for another reason.
    """
    code = [Path(module).read_text() for module in (__file__, hlo.__file__)]
    what = (lowered.as_text(), slice_.type, compiler.versions(slice_.platform), code)
    path = (kept or KEPT) / f"{hashlib.sha256(repr(what).encode()).hexdigest()[:24]}.json"
    if path.exists():
        return read_object(path, "remove it, to compile anew")
    result = _compile(lowered, slice_)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)
    return result


def _compile(lowered: Lowered, slice_: Slice) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except Exception as error:  # XLA's have various types
        if exceeded := _EXCEEDED.search(str(error)):
            amount, unit, limit, unit_of_limit = filter(lambda group: group is not None, exceeded.groups())
            needed, available = float(amount) * _UNITS[unit], float(limit) * _UNITS[unit_of_limit]
            _, largest = hlo.read(lowered.as_text("hlo", debug_info=True))
            return {
                "fits": False,
                "needed": needed,
                "available": available,
                "largest": [vars(buffer) for buffer in largest],
            }
        raise Refused(" ".join(str(error).split())[:400] or type(error).__name__) from error
    seconds = time.perf_counter() - start
    sizes: Any = compiled.memory_analysis()
    memory = {
        "arguments": sizes.argument_size_in_bytes,
        "results": sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        "temporary": sizes.temp_size_in_bytes,
        "code": sizes.generated_code_size_in_bytes,
    }
    collectives, largest = hlo.read(compiled.as_text() or "")
    needed = sum(memory.values())
    result = {"fits": needed <= slice_.chip.memory, "needed": needed, "available": slice_.chip.memory, "memory": memory}
    return result | {
        "largest": [vars(buffer) for buffer in largest],
        "collectives": [vars(collective) for collective in collectives],
        "seconds": round(seconds, 1),
    }
