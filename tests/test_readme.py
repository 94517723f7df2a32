"""Every number of results that the READMEs show is one that the committed runs gave, and what they link to is there."""

import json
import re
from pathlib import Path

import pytest

from experiments.cifar100_vit import report as fine_tuning
from experiments.core.report.finding import NOT_POSSIBLE, Finding, Verdict
from scripts.report import operators, readme
from scripts.report.claims import CLAIMS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
README = (ROOT / "README.md").read_text()
EXPERIMENTS = ("mnist_pruning", "cifar100_pruning", "vmoe_tokens", "vmoe", "vmoe_clusters")
TABLES = {name: (RESULTS / name / "table.md").read_text() for name in (*EXPERIMENTS, *fine_tuning.PAGES.values())}
READMES = [
    ROOT / "README.md",
    ROOT / "ops" / "README.md",
    *ROOT.glob("scripts/**/README.md"),
    *RESULTS.glob("*/README.md"),
]
INTERVAL = re.compile(r"\d+\.\d+ ± \d+\.\d+")


def block(name, text=README):
    """The lines between the marks of a table."""
    (body,) = re.findall(rf"<!-- {name}: [^\n]*-->\n(.*?)<!-- end of {name} -->", text, re.DOTALL)
    return body.splitlines()


@pytest.fixture(scope="module")
def findings():
    """All but those on the operators, which take long, and are held to the README where they are tested."""
    quick = [claim for claim in CLAIMS if claim.find.__module__ != operators.__name__]
    return {claim: claim.find(RESULTS) for claim in quick}


def test_claims_are_those_that_the_results_give(findings):
    head, rows = block("claims")[:2], block("claims")[2:]
    assert head == readme.claims_table((), ())
    assert len(rows) == len(CLAIMS)
    for claim, row in zip(CLAIMS, rows, strict=True):
        assert claim not in findings or row == readme.claim_row(claim, findings[claim]), "make report writes it again"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("README.md", ["speed"]),
        ("results/bench/README.md", ["speed in full", "slower", "programs", "exactness"]),
        ("ops/README.md", ["solvers"]),
    ],
)
def test_speed_and_errors_are_those_of_the_benchmarks(path, names):
    tables, text = readme.speed_tables(), (ROOT / path).read_text()
    for name in names:
        assert block(name, text) == tables[name], "make report writes it again"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_table_is_the_first_of_the_results(name):
    text = (RESULTS / name / "README.md").read_text()
    first = re.search(r"(^\|.*\n)+", TABLES[name], re.MULTILINE)[0]
    assert first.count("±") > 5
    assert first in text
    assert not [row for row in text.replace(first, "").splitlines() if row.startswith("|")]


@pytest.mark.parametrize(("part", "name"), fine_tuning.PAGES.items())
def test_tables_on_fine_tuning_are_those_of_the_results(part, name):
    text = (RESULTS / name / "README.md").read_text()
    assert block(part, text) == fine_tuning.blocks(RESULTS)[part], "make report writes it again"


@pytest.mark.parametrize("name", readme.pruning_lines())
def test_sentences_on_pruning_are_those_of_the_results(name):
    text = (RESULTS / "mnist_pruning" / "README.md").read_text()
    assert block(name, text) == readme.pruning_lines()[name], "make report writes it again"


@pytest.mark.parametrize("name", ["", *TABLES])
def test_intervals_come_from_the_results(name, findings):
    """In text, signs are words."""
    pages = {claim: found.plain for claim, found in findings.items() if f"results/{name}/README.md" in claim.pages}
    measured = [
        f"{abs(one.mean):.2f} ± {one.half:.2f}" for claim in pages for one in findings[claim].measured if one.half
    ]
    known = INTERVAL.findall("\n".join([TABLES[name], *pages.values(), *measured] if name else TABLES.values()))
    shown = INTERVAL.findall((RESULTS / name / "README.md").read_text() if name else README)
    assert len(shown) > 5
    assert set(shown) <= set(known)


def test_what_is_slower_is_said():
    cases, times = (
        json.loads((RESULTS / "bench" / name).read_text()) for name in (readme.RECORD, f"isotonic-{readme.RECORD}")
    )
    ratios = [
        found["ratio_to"]["lax.top_k"]
        for case in cases["cases"]
        for found in case["results"]
        if found["contestant"].startswith("topk_")
    ]
    medians = {(row["way"], row["n"]): row["median_ms"] for row in times["rows"]}
    ratios += [ms / medians["lax.top_k", n] for (way, n), ms in medians.items() if way == "scalar equation"]
    _, _, *rows, _, sentence = readme.speed_tables()["slower"]
    slower = [int(found) for row in rows for found in re.findall(r"(\d+) of", row)]
    assert len(slower) == len(rows)
    assert sum(slower) == sum(ratio > 1 for ratio in ratios)
    assert f"other {sum(ratio <= 1 for ratio in ratios)} ratios" in sentence


def test_update_writes_between_the_marks_alone(tmp_path, monkeypatch):
    results = tmp_path / "results"
    benchmarks = [f"bench/{name}{readme.RECORD}" for name in ("", "isotonic-", "exactness-")]
    for name in (*benchmarks, "mnist_pruning/table.json"):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text((RESULTS / name).read_text())
    (tmp_path / "ops").mkdir()
    for directory in (tmp_path / "ops", results / "bench"):
        (directory / "README.md").write_text("no table\n")
    (tmp_path / "README.md").write_text("before\n<!-- claims: by hand -->\n| old |\n<!-- end of claims -->\nafter\n")
    monkeypatch.setattr(readme, "RESULTS", results)
    found = Finding("A sentence.", Verdict("no", "5.00 ± 1.00"), NOT_POSSIBLE, "a | b", "points")
    assert readme.update(CLAIMS[:1], [found]) == [tmp_path / "README.md"]
    first, mark, *rows, end, last = (tmp_path / "README.md").read_text().splitlines()
    assert (first, mark, end, last) == ("before", "<!-- claims: by hand -->", "<!-- end of claims -->", "after")
    assert rows == readme.claims_table(CLAIMS[:1], [found])
    assert r"| **no**: 5.00\xa0±\xa01.00 | not possible here | a \| b |".replace(r"\xa0", "\xa0") in rows[2]
    assert readme.update(CLAIMS[:1], [found]) == []
    assert readme.update(CLAIMS[:1], [None]) == [tmp_path / "README.md"]
    assert "| not measured | - | - |" in (tmp_path / "README.md").read_text()


def test_rows_of_tables_are_short():
    assert max(len(line) for line in README.splitlines() if line.startswith("|")) <= 160


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", path.read_text())
    for link, part in links:
        if "://" not in link:
            assert (path.parent / link).exists(), link
        if part and link.endswith(".md"):
            titles = re.findall(r"(?m)^#+ (.*)", (path.parent / link).read_text())
            assert part in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], part


def test_the_readme_is_short():
    assert README.count("\n") <= 110


def test_records_name_no_place_of_the_machine_that_they_come_from():
    place = re.compile(r'"(?:--\w+=)?(?:/\w+/|[A-Z]:\\)[^"]*"')
    found = {str(path.relative_to(ROOT)): place.search(path.read_text()) for path in RESULTS.rglob("*.json")}
    assert not {path: match[0] for path, match in found.items() if match}
    assert place.search('["--text=/tmp/here"]')
    assert place.search('{"workdir": "/home/me/runs"}')
