"""Every row of results that the READMEs show is one that the committed runs gave."""

import json
from pathlib import Path

from scripts.bench.isotonic import table

ROOT = Path(__file__).parent.parent


def test_rows_of_results_come_from_the_table():
    section = (ROOT / "README.md").read_text().partition("## What reproduces")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "±" in line]
    assert rows
    made = (ROOT / "results" / "mnist_pruning" / "table.md").read_text().splitlines()
    assert [row for row in rows if row not in made] == []


def test_times_of_solvers_come_from_the_benchmark():
    record = json.loads((ROOT / "results" / "bench" / "isotonic-cpu-amd-epyc-2c.json").read_text())
    assert "\n".join(table(record["rows"])) in (ROOT / "ops" / "README.md").read_text()
