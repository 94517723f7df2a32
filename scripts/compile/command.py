"""Compiles for accelerators that are not at hand, and says what fits.

    python -m scripts.compile EXPERIMENT --config=PATH[:VARIANT] --type=TYPE [--config.FIELD=VALUE ...]
    python -m scripts.compile operators --type=TYPE
    python -m scripts.compile check [--type=TYPE,...]

The first compiles the train step and the evaluation of a run, as the trainer would on a slice of that type: whether
they fit, the memory of a device, the largest arrays, operations, collectives with their bytes, and what to change. The
second compiles every operator with its gradient; the third does both for all chips and the experiments at full size.
TYPE is as v5litepod-16, 2xv5litepod-16, v6e-64, v5p-16 or h200-8. Nothing is run, and nothing is timed. The exit status
is 3 if a step or an evaluation does not fit, and 1 if an operator does not compile.
"""

import argparse
import json
import subprocess
from collections.abc import Sequence

from experiments.core.errors import UsageError
from experiments.core.record import chips
from experiments.core.record.chips import Slice
from scripts.compile import check, compiler, operators, step

DOES_NOT_FIT = 3


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    options, overrides = _parser().parse_known_args(arguments)
    if options.what in ("operators", "check") and overrides:
        raise UsageError(f"unexpected argument {overrides[0]!r} of {options.what}")
    if options.what == "check":
        return check.go(options.type.split(",") if options.type else ())
    if not options.type:
        raise UsageError("--type is required, for example --type=v5litepod-16")
    slice_ = chips.parse(options.type)
    if python := compiler.other_python(slice_.platform):
        return subprocess.call([python, "-m", "scripts.compile", *arguments])
    return _operators(slice_, options) if options.what == "operators" else _step(slice_, options, overrides)


def _operators(slice_: Slice, options: argparse.Namespace) -> int:
    compiler.prepare(slice_)
    device, failed = compiler.devices(slice_)[0], False
    for name, size in operators.cases():
        result = operators.compile_(name, size, slice_, device)
        failed = failed or "error" in result
        said = [result.get("error") or step.size_of(result["needed"]), *result["warnings"]]
        print(json.dumps(result) if options.json else f"{result['program']}: {'; '.join(said)}", flush=True)
    return 1 if failed else 0


def _step(slice_: Slice, options: argparse.Namespace, overrides: Sequence[str]) -> int:
    recipe, config = step.run_of(options.what, options.config or f"configs/{options.what}.py", overrides, slice_)
    compiler.prepare(slice_)
    program = step.program_of(recipe, config, compiler.devices(slice_))
    if not options.json:
        print(step.heading(program, slice_), flush=True)
    fits = True
    for part in ("train",) if options.no_evaluation else ("train", "evaluation"):
        result = step.compile_(program, part, slice_)
        print(json.dumps(result) if options.json else "\n".join(step.lines(part, result, slice_)), flush=True)
        fits = fits and result["fits"]
    return 0 if fits else DOES_NOT_FIT


def _parser() -> argparse.ArgumentParser:
    own = {"prog": "python -m scripts.compile", "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, **own)  # type: ignore[arg-type]
    parser.add_argument("what", help="an experiment, as vmoe; or operators; or check")
    parser.add_argument("--type", help="the slice to compile for, as v5litepod-16; of check: chips, commas between")
    parser.add_argument("--config", help="a Python file, which is run; configs/EXPERIMENT.py[:VARIANT] if left out")
    parser.add_argument("--no_evaluation", action="store_true", help="the train step alone")
    parser.add_argument("--json", action="store_true", help="a JSON object a line, one for each program")
    return parser
