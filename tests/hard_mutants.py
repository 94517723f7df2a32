"""Does a test notice if its function is replaced by the hard operator? `python -m tests.hard_mutants`.

For each row of the table of `ops/README.md`, runs the test it names in a process in which the function it names is
replaced, by itself with lam = 0 where it takes a lam and otherwise by the hard top-k mask, and expects it to fail.
Also a plugin of pytest, which makes that replacement.
"""

import functools
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_VARIABLE = "HARD_MUTANT"
_ROW = re.compile(r"^\| (?P<source>[^|]+) \| [^|]+ \| `(?P<function>[\w.]+)`[^|]* \| `(?P<test>[\w/.:\[\]-]+)` \|$")


def rows(text):
    """Source, function and test of each row of the table."""
    return [match.groupdict() for match in map(_ROW.match, text.splitlines()) if match]


def mutant(function):
    """The hard operator in the place of a function."""
    from ops import hard_topk_mag, hard_topk_mask

    parameters = inspect.signature(function).parameters
    if function.__name__ == "topk_mag":
        return lambda x, k, *, lam=0.0, p=2.0, debias=False, solver="", **options: hard_topk_mag(x, k, **options)
    if "lam" in parameters and function.__name__ != "isotonic_regression":

        @functools.wraps(function)
        def at_lam_0(*args, **options):
            return function(*args, **options | {"lam": 0.0})

        return at_lam_0
    return lambda x, k=1, *args, axis=-1, **options: hard_topk_mask(x, 1 if k is None else k, axis=axis)


def _replace(name):
    """Puts the mutant wherever the function of this name is bound in `ops`."""
    import ops

    names = [module.name for module in pkgutil.walk_packages(ops.__path__, "ops.")]
    modules = [ops, *map(importlib.import_module, names)]
    (original,) = {id(found): found for module in modules if callable(found := getattr(module, name, None))}.values()
    replacement = mutant(original)
    for module in modules:
        for bound, value in list(vars(module).items()):
            if value is original:
                setattr(module, bound, replacement)


def main():
    """Runs the mutants; returns how many survived."""
    table = rows((_ROOT / "ops" / "README.md").read_text())
    survivors, start = [], time.monotonic()
    for number, row in enumerate(table, 1):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.hard_mutants", "-p", "no:cacheprovider"]
        environment = os.environ | {_VARIABLE: row["function"]}
        run = subprocess.run([*command, row["test"]], cwd=_ROOT, env=environment, capture_output=True, text=True)
        noticed = run.returncode == 1
        left = (time.monotonic() - start) / number * (len(table) - number)
        verdict = "noticed" if noticed else f"NOT NOTICED (pytest exited with {run.returncode})"
        print(f"[{number}/{len(table)}] {row['function']}: {row['test']}: {verdict}  ({left:.0f} s left)", flush=True)
        if not noticed:
            survivors.append(row)
            print(run.stdout[-2000:])
    print(f"{len(table) - len(survivors)} of {len(table)} replacements were noticed")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(main())
elif os.environ.get(_VARIABLE):
    _replace(os.environ[_VARIABLE].rpartition(".")[2])
