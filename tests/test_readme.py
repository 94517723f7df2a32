"""Every number of results that the READMEs show is one that the committed runs gave, and what they link to is there."""

import re
from pathlib import Path

import pytest

from scripts.report import operators, readme
from scripts.report.claims import CLAIMS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
README = (ROOT / "README.md").read_text()
EXPERIMENTS = ("mnist_pruning", "cifar100_pruning", "cifar100_vit", "vmoe_tokens", "vmoe", "vmoe_clusters")
FEATURES = ("cifar100_pretrained", "cifar100_last_block")
TABLES = {name: (RESULTS / name / "table.md").read_text() for name in EXPERIMENTS + FEATURES}
READMES = [
    ROOT / "README.md",
    ROOT / "ops" / "README.md",
    *ROOT.glob("scripts/**/README.md"),
    *RESULTS.rglob("README.md"),
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


def test_blocks_are_those_that_the_results_give():
    made = readme.blocks(RESULTS) | {"claims": block("claims")}
    texts = {path: path.read_text() for path in READMES}
    assert {path for path, text in texts.items() if readme.fill(text, made) != text} == set(), "make report"
    shown = {name for text in texts.values() for name in re.findall(r"<!-- end of (.*) -->", text)}
    assert shown == set(made)


@pytest.mark.parametrize("name", ["", *TABLES])
def test_intervals_come_from_the_results(name, findings):
    """In text, signs are words."""
    verdicts = [
        verdict.number
        for claim, found in findings.items()
        for verdict in (found.as_stated, found.tuned)
        if verdict and claim.page == f"results/{name}"
    ]
    known = INTERVAL.findall("\n".join([TABLES[name], *verdicts] if name else TABLES.values()))
    shown = INTERVAL.findall((RESULTS / name / "README.md").read_text() if name else README)
    assert len(shown) > 5
    assert set(shown) <= set(known)


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", path.read_text())
    for link, part in links:
        if "://" not in link:
            assert (path.parent / link).exists(), link
        if part and link.endswith(".md"):
            titles = re.findall(r"(?m)^#+ (.*)", (path.parent / link).read_text())
            assert part in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], part


def test_records_name_no_place_of_the_machine_that_they_come_from():
    place = re.compile(r'"(?:--\w+=)?(?:/\w+/|[A-Z]:\\)[^"]*"')
    found = {str(path.relative_to(ROOT)): place.search(path.read_text()) for path in RESULTS.rglob("*.json")}
    assert not {path: match[0] for path, match in found.items() if match}
    assert place.search('["--text=/tmp/here"]')
    assert place.search('{"workdir": "/home/me/runs"}')
