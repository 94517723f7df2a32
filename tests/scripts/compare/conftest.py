"""Runs, their page, and a browser that has it open: one for all tests here, as to open it takes longer than a test."""

import json

import numpy as np
import pytest

from experiments.core.record.files import write_json
from experiments.core.record.pictures import Histogram, Pictures
from experiments.core.record.workdir import Workdir
from experiments.core.report.results import LAUNCH
from scripts.compare.__main__ import main
from tests.scripts.browser import chromium, watched
from tests.scripts.compare.looking import remember, reset
from tests.scripts.workdirs import write_fine_tuning, write_workdir

START = [90.0, 88.0, 89.0]
EXPERIMENT = {"experiment": "mnist_pruning", "command": ["python", "-m", "experiments.mnist_pruning"], "resumed": []}


@pytest.fixture(scope="package")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="package")
def runs(tmp_path_factory):
    """Four pruning runs, two of them with pictures, and one of another experiment."""
    directory = tmp_path_factory.mktemp("runs")
    late = [[20.0 - i, 19.0 - i, 18.0 - i] for i in range(8)]
    write_workdir(directory / "a", [START, *late, [7.0, 8.0, 6.0]], method="hard", pictures=pictures(2))
    write_workdir(directory / "b", [START, *late, [5.0, 6.5, 4.0]], lam__start=0.1)
    write_workdir(directory / "c", [START, *late, [9.0, None, 8.5]], lam__start=1.0, pictures=pictures(30))
    write_workdir(directory / "d<b>", [START, *late, [3.0, 3.0, 3.0]], dataset="<script>oops()</script>")
    Workdir(directory / "d<b>").summary.unlink()
    write_json(directory / "d<b>" / LAUNCH, {"state": "failed", "reason": "ValueError: <no memory>"})
    for name in ("a", "b", "c", "d<b>"):
        Workdir(directory / name).environment.write_text(json.dumps(EXPERIMENT))
    write_fine_tuning(directory / "e", {1: [20.0, 21.0], 5: [40.0, 41.0]})
    (directory / "f").mkdir()
    (directory / "f" / "summary.json").write_text("{}")
    return directory


def pictures(arrays):
    """Three images, the first of them red, and histograms of as many arrays, of -i to i."""
    images = np.full((3, 4, 4, 3), 255, np.uint8)
    images[0, ..., 1:] = 0
    numbers = np.linspace(-1, 1, 640)
    histograms = {
        f"network/block_{i}/Attention_0/query/kernel": Histogram.of(i * numbers) for i in range(1, arrays + 1)
    }
    return Pictures({"first_layer": images}, histograms)


@pytest.fixture(scope="package")
def path(runs, tmp_path_factory):
    """Of the page of the runs."""
    out = tmp_path_factory.mktemp("page")
    assert main([str(runs), f"--out={out}", "--no_figures"]) == 0
    return out / "index.html"


@pytest.fixture(scope="package")
def opened(browser, path):
    """The page, watched; what tests have chosen in it stays."""
    with watched(browser, path) as (page, seen):
        remember(page)
        yield page, seen


@pytest.fixture
def page(opened):
    """The page as it was opened, with the pruning experiment chosen."""
    page, seen = opened
    reset(page)
    yield page
    assert seen.wrong(page.url) == []
