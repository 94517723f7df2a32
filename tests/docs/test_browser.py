"""The site in a browser, where `make docs` has built it: every page, on a desk and on a phone."""

import pytest

from tests.docs.pages import PAGES, SITE, name_of
from tests.scripts.browser import chromium, watched

BUILT = [SITE / f"{name_of(path)}.html" for path in PAGES]

pytestmark = pytest.mark.skipif(not (SITE / "search.html").exists(), reason="the site is not built: make docs")

# Formulas, those that MathJax has drawn, those that it could not read, and how far the page is wider than the window.
STATE = """() => ({
  formulas: document.querySelectorAll(".math").length,
  drawn: document.querySelectorAll(".math > mjx-container > svg").length,
  failed: [...document.querySelectorAll("[data-mml-node=merror]")].map((node) => node.parentNode.textContent),
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
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate(STATE)["excess"] <= 0, "it scrolls sideways on a phone"
