"""Tables of the READMEs: written between their marks alone, none forgotten, and those of the timings by value."""

import json

import pytest

from experiments.core.errors import UsageError
from experiments.core.report.finding import NOT_POSSIBLE, Finding, Verdict
from scripts.report import readme, timings
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
    with pytest.raises(UsageError, match="'faster'"):
        readme.fill("<!-- faster: x -->\n<!-- end of faster -->\n", {"speed": []})


def test_a_claim_is_a_row():
    found = Finding(Verdict("no", "5.00 ± 1.00"), NOT_POSSIBLE, "a | b")
    told = readme.claim_row(CLAIMS[0], found).split(" | ")
    assert told[0] == f"| [{CLAIMS[0].short}](results/mnist_pruning)"
    assert told[1:] == ["**no**: 5.00\u00a0±\u00a01.00", "not possible here", r"a \| b |"]
    assert readme.claim_row(CLAIMS[0], None).endswith("| not measured | - | - |")


def test_tables_of_timings_by_value(tmp_path):
    (tmp_path / "bench").mkdir()

    def timed(contestant, mode, ratio):
        return {"contestant": contestant, "mode": mode, "status": "timed", "ratio_to": {"lax.top_k": ratio}}

    shapes = [tuple(map(int, shape.split(", "))) for shape in timings.SHOWN]
    results = [timed("topk_mask p=2", "forward", 0.5), timed("topk_mag p=2", "forward", 1.5)]
    cases = [{"batch": b, "n": n, "k": k, "results": results} for b, n, k in shapes]
    ways = {"PAV": 3.0, "scalar equation": 2.0, "lax.top_k": 1.0}
    times = [{"way": way, "n": 100, "k": 10, "median_ms": ms} for way, ms in ways.items()]
    errors = [
        {"way": way, "n": 100, "k": 10, "lam": 0.1, "max_abs_error": error}
        for way, error in (("PAV", 1e-7), ("Dykstra, 10 iterations", 0.5))
    ]
    machine = {
        "masks": {"cases": cases},
        "isotonic": {"rows": times, "settings": {"lam": 0.1}},
        "exactness": {"rows": errors},
    }
    for name in (timings.RECORD, timings.GPU):
        (tmp_path / "bench" / name).write_text(json.dumps(machine))
    made = timings.blocks(tmp_path)
    assert made["speed"][2] == "| 1, 100 to 100, lam = 0.1 | 2 to 2 | - | - | - | - |"
    assert made["speed"][3] == f"| {timings.SHOWN[0]} | 0.5 | - | - | - | - |"
    assert made["speed on a GPU"][2] == f"| {timings.SHOWN[0]} | 0.5 | - | - | - | - |"
    assert made["solvers"][2] == "| PAV | 3 | - | - | - | 1e-07 |"
