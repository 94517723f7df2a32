"""Tables of the READMEs: written between their marks alone, none forgotten, and those of the timings by value."""

import json
import re

import pytest

from experiments.core.errors import UsageError
from experiments.core.report.finding import NOT_POSSIBLE, Finding, Verdict
from scripts.report import RESULTS, readme, timings
from scripts.report.claims import CLAIMS


def test_update_writes_between_the_marks_alone(tmp_path):
    texts = {
        "README.md": "before\n<!-- speed: by hand -->\n| old |\n<!-- end of speed -->\nafter\n",
        "ops/README.md": "no table\n",
        "results/mnist/README.md": "<!-- why: x -->\n<!-- end of why -->\n<!-- speed: x -->\n<!-- end of speed -->\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    made = {"speed": ["| a |", "| b |"], "why": ["Words."], "unused": ["x"]}
    changed = readme.update(tmp_path / "results", made)
    assert [path.relative_to(tmp_path).as_posix() for path in changed] == ["README.md", "results/mnist/README.md"]
    assert (tmp_path / "README.md").read_text() == (
        "before\n<!-- speed: by hand -->\n| a |\n| b |\n<!-- end of speed -->\nafter\n"
    )
    assert (tmp_path / "results/mnist/README.md").read_text() == (
        "<!-- why: x -->\nWords.\n<!-- end of why -->\n<!-- speed: x -->\n| a |\n| b |\n<!-- end of speed -->\n"
    )
    assert readme.update(tmp_path / "results", made) == []


def test_a_block_that_nobody_makes_is_named():
    with pytest.raises(UsageError, match="'slower'"):
        readme.fill("<!-- slower: x -->\n<!-- end of slower -->\n", {"speed": []})


def test_a_claim_is_a_row():
    found = Finding("A sentence.", Verdict("no", "5.00 ± 1.00"), NOT_POSSIBLE, "a | b", "points", {})
    told = readme.claim_row(CLAIMS[0], found).split(" | ")
    assert told[0] == f"| [{CLAIMS[0].short}](results/mnist_pruning)"
    assert told[1:] == ["**no**: 5.00\u00a0±\u00a01.00", "not possible here", r"a \| b |"]
    assert readme.claim_row(CLAIMS[0], None).endswith("| not measured | - | - |")


def test_what_is_slower_is_said():
    machine = json.loads((RESULTS / "bench" / timings.RECORD).read_text())
    cases, times = machine["masks"], machine["isotonic"]
    ratios = [
        found["ratio_to"]["lax.top_k"]
        for case in cases["cases"]
        for found in case["results"]
        if found["contestant"].startswith("topk_")
    ]
    medians = {(row["way"], row["n"]): row["median_ms"] for row in times["rows"]}
    ratios += [ms / medians["lax.top_k", n] for (way, n), ms in medians.items() if way == "scalar equation"]
    _, _, *rows, _, sentence = timings.blocks(RESULTS)["slower"]
    slower = [int(found) for row in rows for found in re.findall(r"(\d+) of", row)]
    assert len(slower) == len(rows)
    assert sum(slower) == sum(ratio > 1 for ratio in ratios)
    assert f"other {sum(ratio <= 1 for ratio in ratios)} ratios" in sentence


def test_tables_of_timings_by_value(tmp_path):
    (tmp_path / "bench").mkdir()

    def timed(contestant, mode, ratio):
        return {"contestant": contestant, "mode": mode, "status": "timed", "ratio_to": {"lax.top_k": ratio}}

    shapes = [tuple(map(int, shape.split(", "))) for shape in timings.SHOWN]
    results = [timed("topk_mask p=2", "forward", 0.5), timed("topk_mag p=2", "forward", 1.5)]
    cost = {"traced_s": 0.1, "lowered_s": 0.2, "compiled_s": 0.4, "equations": 7}
    programs = [{"program": "a", "mode": "forward", "lam": "traced", **cost}]
    cases = [{"batch": b, "n": n, "k": k, "results": results} for b, n, k in shapes]
    ways = {"PAV": 3.0, "scalar equation": 2.0, "lax.top_k": 1.0}
    times = [{"way": way, "n": 100, "k": 10, "median_ms": ms} for way, ms in ways.items()]
    errors = [
        {"way": way, "n": 100, "k": 10, "lam": 0.1, "max_abs_error": error}
        for way, error in (("PAV", 1e-7), ("Dykstra, 10 iterations", 0.5))
    ]
    machine = {
        "masks": {"cases": cases, "programs": programs},
        "isotonic": {"rows": times, "settings": {"lam": 0.1}},
        "exactness": {"rows": errors},
    }
    (tmp_path / "bench" / timings.RECORD).write_text(json.dumps(machine))
    made = timings.blocks(tmp_path)
    assert made["speed"][2] == "| 1, 100 to 100, lam = 0.1 | 2 to 2 | - | - | - | - |"
    assert made["speed"][3] == f"| {timings.SHOWN[0]} | 0.5 | - | - | - | - |"
    assert made["slower"][2] == "| 1, 100, 10 | 1 of 1 | 2 | `topk_mask p=2 lam=0.1` |"
    assert made["slower"][3] == f"| {timings.SHOWN[0]} | 1 of 2 | 1.5 | `topk_mag p=2 forward` |"
    assert made["programs"][2] == "| `a` | - | - | 7: 0.30 s + 0.40 s | - |"
    assert made["solvers"][2] == "| PAV | 3 | - | - | - | 1e-07 |"
    assert made["exactness"][2] == "| 0.1 | 0 of 1 sizes | 0.5 |"
