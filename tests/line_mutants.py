"""Does a test notice if a line is wrong? `python -m tests.line_mutants [FILE of ops]`.

For each line below, runs the tests of its file on a copy of the library that has the other line, and expects them to
fail. `tests/ops/test_mutants.py` makes sure that the lines are still there.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """A line of a file of `ops`, or a part of it, what it becomes, and the tests that should fail."""

    file: str
    line: str
    wrong: str
    tests: str

    @property
    def text(self):
        """The file as it is."""
        return (ROOT / "ops" / self.file).read_text()


_PLAN, _SLOTS, _GROUPS = "tests/ops/test_plan.py", "tests/ops/test_slots.py", "tests/ops/test_groups.py"
_TREES, _PRUNING = "tests/ops/test_topk_trees.py tests/ops/test_topk_mag_tree.py", "tests/ops/test_pruning.py"
_ARGUMENTS, _SUPPORT = "tests/ops/interface/test_arguments.py", "tests/ops/test_support.py"

MUTANTS = [
    Mutant("support.py", "reach * gamma ** (1 - p) if in_magnitude else reach", "reach", _SUPPORT),
    Mutant("support.py", "full = c * shares >= 1", "full = c * shares >= 2", _SUPPORT),
    Mutant("support.py", "_total(above.astype(s.dtype)) < k", "_total(above.astype(s.dtype)) < 0", _SUPPORT),
    Mutant("support.py", "choose(any_will_do, STRONGEST, lam)", "lam", _SUPPORT),
    Mutant("support.py", "any_will_do | (gamma == 0)", "any_will_do", _SUPPORT),
    Mutant("support.py", "where & (x != -jnp.inf)", "x != -jnp.inf", _SUPPORT),
    Mutant("support.py", "choose(largest < jnp.inf,", "choose(largest <= jnp.inf,", _SUPPORT),
    Mutant("plan.py", "jnp.minimum(matrices(k)[:, :, :1], available)", "matrices(k)[:, :, :1]", _PLAN),
    Mutant("plan.py", "found.residual <= tol", "found.residual <= 1e4 * tol", _PLAN),
    Mutant("plan.py", "turned=column < row", "turned=False", _PLAN),
    Mutant("plan.py", "choose(where, x, -jnp.inf)", "choose(where, x, 0.0)", _PLAN),
    Mutant("plan.py", "lam[:, :, None])\n", "lam[:1, :, None])\n", _PLAN),
    Mutant("slots.py", "rest = mask.at[row, indices].set(0.0", "rest = mask.at[row, indices].add(0.0", _SLOTS),
    Mutant("slots.py", "choose(entries == 0, 0.0, entries)", "mask", _SLOTS),
    Mutant("slots.py", "choose(entries == 0, 0.0, entries)", "entries", _SLOTS),
    Mutant("slots.py", ".add(weighed", ".set(weighed", _SLOTS),
    Mutant("slots.py", "dtype, width = working_dtype(outputs.dtype)", "dtype, width = outputs.dtype", _SLOTS),
    Mutant("groups.py", "np.minimum(tile, size - tile *", "np.minimum(tile, size + 0 *", _GROUPS),
    Mutant("groups.py", "choose(size == 0, at_zero, _ratio(wanted, size))", "_ratio(wanted, size)", _GROUPS),
    Mutant("groups.py", "choose((largest > 0) & (largest < jnp.inf), largest, 1.0)", "jnp.ones_like(largest)", _GROUPS),
    Mutant("groups.py", "jnp.moveaxis(runs.reshape(moved), -1, axis)", "runs.reshape(shape)", _GROUPS),
    Mutant("groups.py", "choose(some, a / choose(some, b, 1.0), 0.0)", "a / b", _GROUPS),
    Mutant("leaves.py", "largest = min(numbers)", "largest = max(numbers)", f"{_TREES} {_GROUPS} {_ARGUMENTS}"),
    Mutant("leaves.py", "lambda s: s > 0, rows", "lambda s: s >= 0, rows", "tests/ops/test_zeros.py"),
    Mutant("leaves.py", "results[index] = jnp.ones_like(array)", "results[index] = jnp.zeros_like(array)", _TREES),
    Mutant(
        "leaves.py", "return 1 if axis_name is None else lax.axis_size(axis_name)", "return 1", f"{_TREES} {_GROUPS}"
    ),
    Mutant("trees.py", "        debias=True,\n", "        debias=False,\n", _TREES),
    Mutant("trees.py", "        debias=debias,\n", "        debias=False,\n", _TREES),
    Mutant("pruning.py", "self.p if lam is not None else 2.0", "2.0", _PRUNING),
    Mutant("pruning.py", "jnp.floor(jnp.asarray(k))", "jnp.ceil(jnp.asarray(k))", _PRUNING),
    Mutant("pruning.py", "if self.exclude and self.exclude(path, leaf):", "if False:", _PRUNING),
    Mutant("pruning.py", "hard if soft is given else straight_through(hard, soft)", "hard", _PRUNING),
    Mutant("matrices.py", "if len(shape) >= 2 else", "if len(shape) >= 1 else", _PRUNING),
]


def main(files):
    """Runs the mutants of these files, or all; returns how many survived."""
    chosen = [mutant for mutant in MUTANTS if not files or mutant.file in files]
    survivors, start = 0, time.monotonic()
    for number, mutant in enumerate(chosen, 1):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("ops", "tests", "pyproject.toml"):
                target = Path(folder, name)
                copytree(ROOT / name, target) if (ROOT / name).is_dir() else target.write_text(
                    (ROOT / name).read_text()
                )
            Path(folder, "ops", mutant.file).write_text(mutant.text.replace(mutant.line, mutant.wrong))
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests.split()]
            run = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True)
        noticed = run.returncode == 1
        left = (time.monotonic() - start) / number * (len(chosen) - number)
        verdict = "noticed" if noticed else f"NOT NOTICED (pytest exited with {run.returncode})"
        print(f"[{number}/{len(chosen)}] {mutant.file}: {mutant.wrong!r}: {verdict}  ({left:.0f} s left)", flush=True)
        survivors += not noticed
    print(f"{len(chosen) - survivors} of {len(chosen)} wrong lines were noticed")
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
