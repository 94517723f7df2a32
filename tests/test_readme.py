"""Every row of results that the READMEs show is one that the committed runs gave."""

import json
from pathlib import Path

from scripts.bench.isotonic import table

ROOT = Path(__file__).parent.parent


def test_rows_of_results_come_from_the_tables():
    section = (ROOT / "README.md").read_text().partition("## What reproduces")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "±" in line]
    assert rows
    tables = [ROOT / "results" / name / "table.md" for name in ("mnist_pruning", "cifar100_vit", "vmoe")]
    made = [table.read_text().splitlines() for table in tables]
    assert [row for row in rows if not any(row in lines for lines in made)] == []
    assert all(set(rows) & set(lines) for lines in made)


def test_times_of_solvers_come_from_the_benchmark():
    record = json.loads((ROOT / "results" / "bench" / "isotonic-cpu-amd-epyc-2c.json").read_text())
    assert "\n".join(table(record["rows"])) in (ROOT / "ops" / "README.md").read_text()
