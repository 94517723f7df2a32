"""The site in a browser, where `make docs` has built it: every page, on a desk and on a phone."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.docs.pages import PAGES, SITE, name_of
from tests.scripts.browser import chromium, watched

# Of the pages that no file is the source of: the index, and a function and its module with long names.
MADE = ["genindex", "api/generated/sparse_topk.baselines.gates.sample_binary_concrete", "_modules/ops/baselines/gates"]
BUILT = [SITE / f"{name}.html" for name in [*map(name_of, PAGES), *MADE]]

pytestmark = pytest.mark.skipif(not (SITE / "search.html").exists(), reason="the site is not built: make docs")

# Formulas, those that MathJax has drawn, those that it could not read, and how far the page is wider than the window.
STATE = """() => ({
  formulas: document.querySelectorAll(".math").length,
  drawn: document.querySelectorAll(".math > mjx-container > svg").length,
  failed: [...document.querySelectorAll("[data-mml-node=merror]")].map((node) => node.parentNode.textContent),
  notebooks: [...document.querySelectorAll(".header-article__inner a[download]")].map((link) => link.pathname),
  broken: [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
  excess: document.documentElement.scrollWidth - window.innerWidth,
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Closed after this file: as long as it is open no other test of the process may run an event loop."""
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.relative_to(SITE).with_suffix("").as_posix())
def test_page(browser, path):
    assert path.exists(), "make docs builds it"
    with watched(browser, path, ready="article", site=SITE) as page:
        page.wait_for_function(f"(state => state.formulas <= state.drawn)(({STATE})())", timeout=60_000)
        state = page.evaluate(STATE)
        assert state["failed"] == []
        assert state["drawn"] == state["formulas"]
        assert state["broken"] == []
        assert state["excess"] <= 0
        tutorial = path.parent.name == "tutorials" and path.stem != "index"
        assert [Path(name) for name in state["notebooks"]] == [SITE / f"{path.stem}.ipynb"] * tutorial
        assert all('"image/png"' in Path(name).read_text() for name in state["notebooks"])  # with its results
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate(STATE)["excess"] <= 0, "it scrolls sideways on a phone"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name",
    ["index", "tutorials/index", "tutorials/topk_loss", "api/index", "api/nonlinearities", "results/benchmarks", *MADE],
)
def test_nothing_keeps_people_from_reading(browser, name, scheme):
    with watched(browser, SITE / f"{name}.html", ready="article", scheme=scheme, site=SITE) as page:
        violations = Axe().run(page, options={"preload": False}).response["violations"]  # by no requests of its own
        assert [(violation["id"], violation["nodes"][0]["html"]) for violation in violations] == []
