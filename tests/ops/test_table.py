"""The table of `ops/README.md` names functions and tests that exist."""

from pathlib import Path

import ops
import ops.baselines
from ops.isotonic import topk_solution
from tests.hard_mutants import mutant, rows

ROOT = Path(__file__).parents[2]
TABLE = rows((ROOT / "ops" / "README.md").read_text())


def test_functions_and_tests_exist():
    section = (ROOT / "ops" / "README.md").read_text().partition("## From the paper")[2].partition("\n## ")[0]
    assert len(TABLE) == sum(line.startswith("| ") for line in section.splitlines()) - 2  # all but the heading
    known = {"topk_solution": topk_solution} | vars(ops.baselines) | vars(ops)
    for row in TABLE:
        assert callable(known[row["function"]]), row
        path, _, name = row["test"].partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), row


def test_mutants_are_hard():
    x = [3.0, 1.0, 2.0]
    assert mutant(ops.topk_mag)(x, 2, lam=9.0).tolist() == [3.0, 0.0, 2.0]
    assert mutant(ops.soft_sort)(x, lam=9.0).tolist() == [1.0, 2.0, 3.0]
    assert mutant(ops.owl_norm)(x, 1).tolist() == [1.0, 0.0, 0.0]
