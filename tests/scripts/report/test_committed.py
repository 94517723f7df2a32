"""All that is committed beside the runs (tables, answers, numbers in the text) is what the runs give; links lead on."""

import functools
import importlib
import json
import re
from pathlib import Path

import pytest

from experiments.core.config import to_json
from experiments.core.report import making
from experiments.core.suite.plan import find
from scripts.report import RESULTS, ROOT, readme
from scripts.report.claims import CLAIMS

# By the directory of results, the experiment and the preset of its suite.
PRESETS = {
    "mnist_pruning": ("mnist_pruning", "full"),
    "mnist_lenet": ("mnist_pruning", "lenet"),
    "relaxations": ("mnist_pruning", "masks"),
    "cifar100_pruning": ("mnist_pruning", "vit"),
    "learned_masks": ("learned_masks", "masks"),
    "cifar100_vit": ("cifar100_vit", "small"),
    "cifar100_pretrained": ("cifar100_vit", "pretrained"),
    "cifar100_last_block": ("cifar100_vit", "last_block"),
    "vmoe": ("vmoe", "buffers"),
    "vmoe_tokens": ("vmoe", "seeds"),
    "vmoe_clusters": ("vmoe_clusters", "clusters"),
    "sparse_attention": ("sparse_attention", "pairs"),
}
TABLES = {name: (RESULTS / name / "table.md").read_text() for name in PRESETS}
READMES = [ROOT / "README.md", *ROOT.glob("ops/README.md"), *ROOT.glob("scripts/**/README.md")]
READMES += RESULTS.rglob("README.md")
INTERVAL = re.compile(r"\d+\.\d+ ± \d+\.\d+")


@pytest.fixture(scope="module")
def findings():
    return [claim.find(RESULTS) for claim in CLAIMS]


def test_readme_blocks_match_the_results(findings):
    """Where this fails, `make report` writes them again."""
    answers = readme.claims_table(CLAIMS, findings)
    made = readme.blocks(RESULTS) | {"claims": answers}
    texts = {path: path.read_text() for path in READMES}
    assert {path for path, text in texts.items() if readme.fill(text, made) != text} == set()
    assert {name for text in texts.values() for name in re.findall(r"<!-- end of (.*) -->", text)} == set(made)


def as_today(config):
    """A config without a field that no number depends on, and that is another today."""
    return config | {"eval_batch_size": None}


@functools.cache
def loaded(name):
    """The report of an experiment, and its runs in a directory of results."""
    report = importlib.import_module(f"experiments.{PRESETS[name][0]}.report")
    runs, problems = report.PRESENTATION.load(RESULTS / name)
    assert problems == []
    return report, runs


@pytest.mark.parametrize("name", PRESETS)
def test_committed_runs_match_their_suite(name):
    """Hence every method has the candidates, the length and the seeds that the committed comparisons gave it."""
    experiment, preset = PRESETS[name]
    suite = find(f"experiments.{experiment}.suite")
    choices = json.loads((RESULTS / name / "choices.json").read_text())
    committed = {run.name: as_today(run.config) for run in loaded(name)[1]["run"]}
    made = {}
    for run in suite.presets[preset]():
        setting = dict(choices[run.best_of]["setting"] if run.best_of else {}) | dict(run.setting)
        made[run.name] = as_today(to_json(suite.config(run, Path("runs") / name, setting)))
    assert made == committed


@pytest.mark.parametrize("name", PRESETS)
def test_tables_and_figures_match_their_runs(name):
    report, runs = loaded(name)
    assert "\n".join(report.tables(runs, making.chosen(RESULTS / name))) == TABLES[name]
    assert report.figures(runs).keys() == {path.stem for path in (RESULTS / name).glob("figures/*.png")}


@pytest.mark.parametrize("name", ["", *(name for name in TABLES if name != "relaxations")])  # a finished study
def test_text_intervals_come_from_results(name, findings):
    """In text, signs are words."""
    answers = [claim for claim in zip(CLAIMS, findings, strict=True) if claim[0].page == f"results/{name}"]
    blocks = importlib.import_module("experiments.vmoe.report").blocks(RESULTS) if name == "vmoe_tokens" else {}
    known = INTERVAL.findall("\n".join([TABLES[name], str(answers), str(blocks)] if name else TABLES.values()))
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


def test_records_hold_no_absolute_paths():
    place = re.compile(r'"(?:--\w+=)?(?:/\w+/|[A-Z]:\\)[^"]*"')
    found = {str(path.relative_to(ROOT)): place.search(path.read_text()) for path in RESULTS.rglob("*.json")}
    assert not {path: match[0] for path, match in found.items() if match}
