"""The documentation site in a browser, where `make docs` has built it: every page, on a desk and on a phone."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

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
  links: [...document.querySelectorAll("a[href], img[src]")].map((node) => node.href || node.src),
  broken: [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
  excess: document.documentElement.scrollWidth - window.innerWidth,
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Closed after this file: as long as it is open no other test of the process may run an event loop."""
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\bid="([^"]*)"', path.read_text()))


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.relative_to(SITE).with_suffix("").as_posix())
def test_page(browser, path):
    assert path.exists(), "make docs builds it"
    with watched(browser, path, ready="article", site=SITE) as (page, _):
        page.wait_for_function(f"(state => state.formulas <= state.drawn)(({STATE})())", timeout=60_000)
        state = page.evaluate(STATE)
        assert state["failed"] == []
        assert state["drawn"] == state["formulas"]
        assert state["broken"] == []
        assert state["excess"] <= 0
        for link in state["links"]:
            parts = urlsplit(link)
            if parts.scheme != "file":
                assert parts.scheme in ("https", "data"), link
                continue
            target = Path(unquote(parts.path))
            assert target.is_file(), link
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in anchors(target), link
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate(STATE)["excess"] <= 0, "it scrolls sideways on a phone"


def test_there_are_formulas_and_pictures():
    """Or else the test of every page would find nothing to look at."""
    assert 'class="math' in (SITE / "api" / "topk.html").read_text()
    assert (SITE / "tutorials" / "relaxed_topk.html").read_text().count("<img") >= 5
