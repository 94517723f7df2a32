"""Tries random problems on every operator: ``python -m scripts.fuzz --count=100000 [--seed=0] [--only=topk_mask]``.

Values and gradients are compared with an oracle of their own (``scripts.fuzz.oracle``). Prints how far off the
worst right answer is, and for every wrong one a line that tries it again: ``--problem='...'``. Ends with status 1 if
there is any. About ten minutes for 100,000 problems on two cores, most of them compilation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from etils import epy

from experiments.core import console, processors
from experiments.core.record.files import write_json
from scripts.arguments import at_least
from scripts.fuzz.oracle.reals import EXTENDED

with epy.lazy_imports():  # --help does without them
    import jax

    from scripts.fuzz import draw, operators, report, run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts.fuzz", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--count", type=at_least(1), default=100_000, help="problems to try; a few more are")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--only", metavar="OPERATOR", help="one operator; default: all")
    parser.add_argument("--problem", help="try this one again, as it was printed")
    parser.add_argument("--jobs", type=at_least(1), help="processes; default: as many as there are cores, 1 off CPUs")
    parser.add_argument("--show", type=at_least(1), default=3, help="failures to print of each sort")
    parser.add_argument("--out", type=Path, help="file for a report in JSON")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if an operator was wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = sorted(operators.OPERATORS)
    if options.only and options.only not in names:
        parser.error(f"--only={options.only} is not allowed: it must be one of {', '.join(names)}")
    if options.problem:
        try:
            outcomes = [run.try_problem(options.problem)]
        except (ValueError, KeyError, TypeError) as error:
            parser.error(f"--problem: {error}")
    else:
        if not EXTENDED:
            print("nothing here is more exact than float64: problems in float64 are tried in float32 instead")
        planned = draw.plan(options.seed, options.count, options.only)
        jobs = options.jobs or (len(processors.available()) if jax.default_backend() == "cpu" else 1)
        rows = sum(batches * setting.rows for setting, batches in planned)
        print(f"{rows} problems, {len(planned)} settings to compile, {jobs} at a time", flush=True)
        outcomes = list(run.try_all(planned, options.seed, jobs, lambda line: print(line, flush=True)))
    print()
    for line in report.lines(outcomes, options.show):
        print(line)
    if options.out:
        write_json(options.out, report.document(outcomes, options.seed))
        print(f"the report is in {options.out}")
    wrong = sum(len(outcome.failures) for outcome in outcomes)
    print(f"{wrong} wrong of {sum(outcome.tried for outcome in outcomes)} problems")
    return int(wrong > 0)


if __name__ == "__main__":
    console.run(main)
