"""The table of `ops/README.md` names functions and tests that exist."""

import re
from pathlib import Path

import ops
import ops.baselines
from ops.isotonic import topk_solution

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| `(?P<function>[\w.]+)`[^|]* \| `(?P<test>[\w/.:\[\]-]+)` \|$", re.MULTILINE)
TABLE = [match.groupdict() for match in _ROW.finditer((ROOT / "ops" / "README.md").read_text())]


def test_functions_and_tests_exist():
    section = (ROOT / "ops" / "README.md").read_text().partition("## From the paper")[2].partition("\n## ")[0]
    assert len(TABLE) == sum(line.startswith("| ") for line in section.splitlines()) - 2  # all but the heading
    known = {"topk_solution": topk_solution} | vars(ops.baselines) | vars(ops)
    for row in TABLE:
        assert callable(known[row["function"]]), row
        path, _, name = row["test"].partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), row
