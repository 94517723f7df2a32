"""All that is committed beside the runs (tables, answers, numbers in the text) is what the runs give; links lead on."""

import importlib
import re
from urllib.parse import unquote

import pytest

from experiments.core.report import making
from scripts.report import RESULTS, ROOT, operators, readme
from scripts.report.claims import CLAIMS
from scripts.report.page import PAGE, page

EXPERIMENTS = {
    "mnist_pruning": ("mnist_pruning", "cifar100_pruning", "relaxations"),
    "cifar100_vit": ("cifar100_vit", "cifar100_pretrained", "cifar100_last_block"),
    "vmoe": ("vmoe", "vmoe_tokens"),
    "vmoe_clusters": ("vmoe_clusters",),
}
TABLES = {name: (RESULTS / name / "table.md").read_text() for names in EXPERIMENTS.values() for name in names}
READMES = [ROOT / "README.md", *ROOT.glob("ops/README.md"), *ROOT.glob("scripts/**/README.md")]
READMES += RESULTS.rglob("README.md")
INTERVAL = re.compile(r"\d+\.\d+ ± \d+\.\d+")


@pytest.fixture(scope="module")
def findings():
    return [claim.find(RESULTS) for claim in CLAIMS]


def test_operators_are_as_their_readme_says(findings):
    found = {
        claim.find.__name__: (finding.as_stated.answer, finding.tuned and finding.tuned.answer)
        for claim, finding in zip(CLAIMS, findings, strict=True)
        if claim.find.__module__ == operators.__name__
    }
    assert found == {
        "sparsity": ("yes", None),
        "smoothness": ("no", None),
        "error_bound": ("yes", None),
        "loss_is_bounded": ("no", "yes"),
    }
    assert "gradient jumps by 1.67" in str(findings)
    assert "1.67" in (ROOT / "ops" / "README.md").read_text()


def test_answers_and_blocks_and_the_page_are_those_that_the_results_give(findings):
    """Where this fails, `make report` writes them again."""
    answers = readme.claims_table(CLAIMS, findings)
    made = readme.blocks(RESULTS) | {"claims": answers}
    texts = {path: path.read_text() for path in READMES}
    assert {path for path, text in texts.items() if readme.fill(text, made) != text} == set()
    assert {name for text in texts.values() for name in re.findall(r"<!-- end of (.*) -->", text)} == set(made)
    assert (RESULTS / PAGE).read_text() == page(CLAIMS, answers, findings, RESULTS)


@pytest.mark.parametrize(
    ("experiment", "name"), [(experiment, name) for experiment, names in EXPERIMENTS.items() for name in names]
)
def test_a_table_is_that_of_its_runs(experiment, name):
    report = importlib.import_module(f"experiments.{experiment}.report")
    runs, problems = report.PRESENTATION.load(RESULTS / name)
    assert problems == []
    assert "\n".join(report.tables(runs, making.chosen(RESULTS / name))) == TABLES[name]


@pytest.mark.parametrize("name", ["", *(name for name in TABLES if name != "relaxations")])  # which has them in blocks
def test_intervals_in_the_text_come_from_the_results(name, findings):
    """In text, signs are words."""
    answers = [claim for claim in zip(CLAIMS, findings, strict=True) if claim[0].page == f"results/{name}"]
    known = INTERVAL.findall("\n".join([TABLES[name], str(answers)] if name else TABLES.values()))
    shown = INTERVAL.findall((RESULTS / name / "README.md" if name else READMES[0]).read_text())
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


def test_every_link_of_the_page_leads_somewhere():
    links = re.findall(r'(?:href|src)="([^"#:]+)[#"]', (RESULTS / PAGE).read_text())
    assert len(links) > len(CLAIMS)
    assert [link for link in links if not (RESULTS / unquote(link)).exists()] == []


def test_records_name_no_place_of_the_machine_that_they_come_from():
    place = re.compile(r'"(?:--\w+=)?(?:/\w+/|[A-Z]:\\)[^"]*"')
    found = {str(path.relative_to(ROOT)): place.search(path.read_text()) for path in RESULTS.rglob("*.json")}
    assert not {path: match[0] for path, match in found.items() if match}
    assert place.search('["--text=/tmp/here"]')
    assert place.search('{"workdir": "/home/me/runs"}')
