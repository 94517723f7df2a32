"""The committed tables and verdicts are those that the committed runs give, to the byte."""

import importlib

import pytest

from experiments.core.report import making
from scripts.report import RESULTS, ROOT, readme
from scripts.report.claims import CLAIMS

EXPERIMENTS = {
    "mnist_pruning": ("mnist_pruning", "cifar100_pruning"),
    "cifar100_vit": ("cifar100_vit", "cifar100_pretrained", "cifar100_last_block"),
    "vmoe": ("vmoe", "vmoe_tokens"),
    "vmoe_clusters": ("vmoe_clusters",),
}


@pytest.mark.parametrize(
    ("experiment", "name"), [(experiment, name) for experiment, names in EXPERIMENTS.items() for name in names]
)
def test_a_table_is_that_of_its_runs(experiment, name):
    report = importlib.import_module(f"experiments.{experiment}.report")
    runs, problems = report.PRESENTATION.load(RESULTS / name)
    assert problems == []
    text = "\n".join(report.tables(runs, making.chosen(RESULTS / name)))
    assert text == (RESULTS / name / "table.md").read_text()


def test_the_readme_has_the_verdicts_of_the_results():
    table = readme.claims_table(CLAIMS, [claim.find(RESULTS) for claim in CLAIMS])
    assert "\n".join(table) in (ROOT / "README.md").read_text()
