"""The committed tables are those that the committed runs give, to the byte."""

import importlib

import pytest

from experiments.core.report import making
from scripts.report import RESULTS

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
