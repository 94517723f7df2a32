"""Compiles for accelerators that are not at hand, and says what the programs hold.

    python -m scripts.aot EXPERIMENT --config=PATH[:VARIANT] --type=TYPE [-- --config.FIELD=VALUE ...]
    python -m scripts.aot operators --type=TYPE [--only=NAME,...] [--n=SIZE,...]
    python -m scripts.aot check [--types=TYPE,...] [--everything] [--jobs=1]
    python -m scripts.aot tables

The first compiles the train step and the evaluation of a run, as the trainer would on a slice of that type: whether
it fits, what it sends, and the least time that a step can take. The second does every operator, for one chip and for
eight. The third does both for all that results/accelerators/ is to hold, and `tables` makes its README. TYPE is as
v5litepod-16, v6e-64, v5p-16 or h200-8. Times are computed, from published rates: nothing is run.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.core.errors import UsageError, in_one_line
from scripts.aot import check, compiler, hardware, one, operators, record, runs, sweep, tables
from scripts.aot.hardware import Slice
from scripts.arguments import at_least

_OPERATORS, _CHECK, _TABLES = "operators", "check", "tables"
_EIGHT = {"TPU v4": "v4-16", "TPU v5e": "v5litepod-8", "TPU v5p": "v5p-16", "TPU v6e": "v6e-8", "H200": "h200-8"}
DOES_NOT_FIT = 3
# Of loops that go on until their data are done, the solvers': what rows of 400 normal scores take at lam = 0.1, p = 2.
ASSUMED_ROUNDS = 9.0


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status: 3 for a step that does not fit, 1 for operators that fail."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    parser = _parser()
    options = parser.parse_args(arguments[:end])
    overrides = list(arguments[end + 1 :])

    def run() -> int:
        if options.what == _TABLES:
            print(f"the tables are in {tables.write(options.results)}")
            return 0
        if options.what == _CHECK:
            try:
                types = options.types.split(",") if options.types else None
                how = {"anew": options.anew, "everything": options.everything, "jobs": options.jobs}
                return check.go(types, options.results, **how)
            except KeyboardInterrupt:
                print("stopped; run it again and it resumes", file=sys.stderr)
                return 128 + signal.SIGINT
        if not options.type:
            raise UsageError("--type is required, for example --type=v5litepod-16")
        slice_ = hardware.parse(options.type)
        command = _recorded(parser, options, overrides)
        if options.what == _OPERATORS:
            return _operators(options, slice_, command)
        return _step(options, slice_, overrides, command)

    return in_one_line(run)


def _recorded(parser: argparse.ArgumentParser, options: argparse.Namespace, overrides: Sequence[str]) -> list[str]:
    """The command as it is recorded: less what concerns this machine alone."""
    changed = {
        name: value
        for name, value in vars(options).items()
        if name not in ("what", "keep_text", "results") and value != parser.get_default(name)
    }
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in changed.items()]
    return ["python", "-m", "scripts.aot", options.what, *flags, *(["--", *overrides] if overrides else [])]


def _operators(options: argparse.Namespace, slice_: Slice, command: Sequence[str]) -> int:
    slice_ = hardware.parse(_EIGHT.get(slice_.device.name, slice_.type))
    compiler.prepare(slice_)
    names = options.only.split(",") if options.only else list(operators.CALLS)
    if unknown := [name for name in names if name not in operators.CALLS]:
        raise UsageError(f"--only={unknown[0]} is not allowed: it must be some of {', '.join(operators.CALLS)}")
    lengths = [str(size.n) for size in operators.SIZES]
    wanted = options.n.split(",") if options.n else lengths
    if unknown := [n for n in wanted if n not in lengths]:
        raise UsageError(f"--n={unknown[0]} is not allowed: it must be some of {', '.join(lengths)}")
    sizes = [size for size in operators.SIZES if str(size.n) in wanted]
    chosen = [
        case
        for case in operators.every(names, sizes)
        if (not options.dtype or case.dtype == options.dtype)
        and (not options.mode or case.mode == options.mode)
        and (not options.divided or bool(case.divided) == (options.divided == "yes"))
    ]
    path = record.path_of(options.results, slice_)
    failed = sweep.go(slice_, compiler.devices(slice_), chosen, path, command, _say, anew=options.anew)
    _say(f"{len(chosen) - failed} of {len(chosen)} compile for {slice_.device.name}; results are in {path}")
    return 1 if failed else 0


def _step(options: argparse.Namespace, slice_: Slice, overrides: Sequence[str], command: Sequence[str]) -> int:
    recipe = runs.recipe_of(options.what)
    config = runs.config_of(recipe, options.config or f"configs/{recipe.name}.py", overrides)
    compiler.prepare(slice_)
    name = options.name or one.name_of(recipe.name, options.config, overrides)
    path = record.path_of(options.results, slice_)
    document = one.go(recipe, config, slice_, path, name, command, _say, options)
    return 0 if document["train"]["fits"] else DOES_NOT_FIT


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.aot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", help=f"an experiment, as vmoe; or {_OPERATORS}, {_CHECK}, {_TABLES}")
    parser.add_argument("--type", help="of the slice, as v5litepod-16")
    parser.add_argument("--config", help="a Python file, which is run; configs/EXPERIMENT.py[:VARIANT] if left out")
    parser.add_argument("--name", help="of the record; left out: of the experiment and its overrides")
    parser.add_argument(
        "--rounds", type=float, default=ASSUMED_ROUNDS, help="of solvers' loops, whose number the data decide (9)"
    )
    parser.add_argument("--no_evaluation", action="store_true", help="the train step alone")
    parser.add_argument(
        "--keep_text", type=Path, metavar="DIR", help="where to keep compiled programs, as XLA prints them"
    )
    parser.add_argument("--only", help="operators, commas between")
    parser.add_argument("--n", help="lengths of rows of operators, commas between")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of operators; left out: both")
    parser.add_argument("--mode", choices=("value", "value and gradient"), help="of operators; left out: both")
    parser.add_argument("--divided", choices=("yes", "no"), help="over eight chips; left out: also")
    parser.add_argument("--types", help="of check, commas between; left out: all that results hold")
    parser.add_argument(
        "--everything", action="store_true", help="of check: operators in every dtype, mode, length and place"
    )
    parser.add_argument(
        "--jobs", type=at_least(1), default=1, help="of check: compilers at once, each of up to 8 GB (1)"
    )
    parser.add_argument("--anew", action="store_true", help="also what the results hold already, of the same code")
    parser.add_argument("--results", type=Path, default=record.DIRECTORY, help="directory to write to")
    return parser
