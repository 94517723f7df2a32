"""Runs, their page, and a browser that has it open: one for all tests here, as to open it takes longer than a test."""

import json

import pytest

from experiments.core.record.workdir import Workdir
from scripts.compare.__main__ import main
from tests.scripts.browser import chromium, watched
from tests.scripts.workdirs import write_fine_tuning, write_workdir

START = [90.0, 88.0, 89.0]


@pytest.fixture(scope="package")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="package")
def runs(tmp_path_factory):
    """Four pruning runs, one of which is unfinished, one of another experiment, and a workdir that is broken."""
    directory = tmp_path_factory.mktemp("runs")
    late = [[20.0 - i, 19.0 - i, 18.0 - i] for i in range(8)]
    write_workdir(directory / "a", [START, *late, [7.0, 8.0, 6.0]], method="hard")
    write_workdir(directory / "b", [START, *late, [5.0, 6.5, 4.0]], lam__start=0.1)
    write_workdir(directory / "c", [START, *late, [9.0, None, 8.5]], lam__start=1.0)
    write_workdir(
        directory / "d<b>", [START, *late, [3.0, 3.0, 3.0]], lam__start=0.3, dataset="<script>oops()</script>"
    )
    Workdir(directory / "d<b>").summary.unlink()
    write_fine_tuning(directory / "e", {1: [20.0, 21.0], 5: [40.0, 41.0], 10: [50.0, 51.0]})
    (directory / "f").mkdir()
    (directory / "f" / "summary.json").write_text(json.dumps({}))
    return directory


@pytest.fixture(scope="package")
def path(runs, tmp_path_factory):
    """The page of the runs."""
    out = tmp_path_factory.mktemp("page")
    assert main([str(runs), f"--out={out}"]) == 0
    return out / "index.html"


@pytest.fixture(scope="package")
def opened(browser, path):
    """The page, watched; what tests have chosen in it stays."""
    with watched(browser, path, ready="#plot .main-svg") as (page, seen):
        yield page, seen


@pytest.fixture
def page(opened):
    """The page as it was opened."""
    page, seen = opened
    page.evaluate("chosen = {}; byId('filter').value = ''; choose({}); document.activeElement.blur()")
    yield page
    assert seen.wrong(page.url) == []
