"""Whoever reads the page, on whatever: contrast, names, keyboard, phones, paper."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from scripts.compare.__main__ import main
from scripts.compare.workdirs import RESULTS
from tests.scripts.browser import watched
from tests.scripts.workdirs import write_workdir

# By the formula of the Web Content Accessibility Guidelines, the worst of some colours on both backgrounds.
CONTRASTS = """(() => {
  const channel = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (hex) => [1, 3, 5].map((i) => channel(parseInt(hex.slice(i, i + 2), 16) / 255))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0.05);
  const ratio = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
  const grounds = ["--background", "--raised"].map(style);
  const worst = (colours) => Math.min(...colours.flatMap((one) => grounds.map((ground) => ratio(one, ground))));
  const texts = ["--text", "--faint", "--accent", "--good", "--middling", "--bad"];
  return { theme: theme(), text: worst(texts.map(style)), curves: worst(PALETTES[theme()]),
    controls: worst([style("--control")]) };
})()"""


@pytest.fixture(scope="module")
def phone(browser, path):
    """The page on the small screen of a system that is dark."""
    with watched(browser, path, width=360, height=740, scheme="dark") as (page, _):
        yield page


@pytest.fixture(params=["light", "dark"])
def scheme(request, page, phone):
    """The page on a desk in the light, and on a phone in the dark; and which of them."""
    shown = {"light": page, "dark": phone}[request.param]
    yield request.param, shown
    shown.select_option("#theme", "")


def test_contrast_of_text_and_curves(scheme):
    scheme, page = scheme
    ratios = page.evaluate(CONTRASTS)
    assert ratios["theme"] == scheme
    assert ratios["text"] >= 4.5
    assert ratios["curves"] >= 3
    assert ratios["controls"] >= 3
    other = {"light": "dark", "dark": "light"}[scheme]
    page.select_option("#theme", other)
    assert page.evaluate("document.documentElement.dataset.theme") == other


def test_a_phone_scrolls_down_and_not_sideways(phone):
    assert phone.evaluate("document.documentElement.scrollWidth") == 360
    plot = phone.locator("#curves-plot").bounding_box()
    assert plot["x"] >= 0
    assert plot["x"] + plot["width"] <= 360
    assert phone.evaluate("document.getElementById('curves-plot')._fullLayout.dragmode") is False


def test_everything_has_a_name_and_can_be_reached_by_keyboard(page):
    assert page.locator("[role=img]:not([aria-label])").count() == 0
    assert "4 of 4 curves shown" in page.get_attribute("#curves-plot", "aria-label")
    unnamed = page.evaluate(
        """[...document.querySelectorAll("main select, main input, main button, header select")].filter((node) =>
          !(node.labels?.length || node.getAttribute("aria-label") || node.textContent))
          .map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    page.focus("a.skip")
    reached = set()
    for _ in range(110):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    wanted = {
        "metric",
        "axis",
        "smooth",
        "log-x",
        "curves-plot-in",
        "filter",
        "hide-all",
        "reference",
        "field",
        "add-config",
        "finals-csv",
        "parallel-metric",
        "pictures-run",
    }
    assert wanted <= reached
    assert any(name.startswith("show-") for name in reached)


def test_printed_pages_are_light_and_whole(phone):
    phone.emulate_media(media="print", color_scheme="dark")
    phone.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert phone.evaluate("document.documentElement.dataset.theme") == "light"
    assert phone.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert phone.evaluate("getComputedStyle(document.querySelector('.tall')).overflowY") == "visible"
    phone.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert phone.evaluate("document.documentElement.dataset.theme") == "dark"
    phone.emulate_media(media="screen", color_scheme="dark")


def test_axe_finds_nothing(scheme):
    _, page = scheme
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    found = Axe().run(page)
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found.response["violations"]] == []
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = false; })")


def test_the_example_of_the_readme_prints_on_few_pages(browser, tmp_path):
    write_workdir(tmp_path / "mine", [[90.0] * 3, [7.0, 8.0, 6.0]], lam__start=10.0, dataset="fashion_mnist")
    assert main([str(RESULTS / "mnist_pruning"), str(tmp_path), f"--out={tmp_path / 'page'}", "--no_figures"]) == 0
    with watched(browser, tmp_path / "page" / "index.html") as (page, _):
        printed = page.pdf(format="A4")
        pages = len(re.findall(rb"/Type /Page\b", printed))
        assert 1 <= pages < 8
