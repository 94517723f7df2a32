"""Whoever reads the page, on whatever: contrast, names, keyboard, phones, and how long the page is."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from scripts.compare.__main__ import main
from scripts.compare.workdirs import RESULTS
from tests.scripts.browser import watched
from tests.scripts.compare.looking import lines
from tests.scripts.workdirs import write_workdir

# By the formula of the Web Content Accessibility Guidelines, the worst of some colours on both backgrounds.
CONTRASTS = """(() => {
  const channel = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (hex) => [1, 3, 5].map((i) => channel(parseInt(hex.slice(i, i + 2), 16) / 255))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0.05);
  const ratio = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
  const grounds = ["--background", "--raised"].map(style);
  const worst = (colours) => Math.min(...colours.flatMap((one) => grounds.map((ground) => ratio(one, ground))));
  const theme = system.matches ? "dark" : "light";
  return { theme, text: worst(["--text", "--faint", "--accent"].map(style)), curves: worst(PALETTES[theme]),
    controls: worst([style("--control")]) };
})()"""
MOST_PIXELS = 3000  # of the height of a page before one has opened more of it


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The page of the committed pruning runs and one that is not among them."""
    directory = tmp_path_factory.mktemp("mixed")
    write_workdir(directory / "mine", [[90.0] * 3, [7.0, 8.0, 6.0]], variant="hard")
    assert main([str(RESULTS / "mnist_pruning"), str(directory / "mine"), f"--out={directory}"]) == 0
    return directory / "index.html"


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 800, "light"), (390, 844, "dark")])
def test_a_page_opens_short_legible_and_without_scrolling_sideways(browser, mixed, width, height, scheme):
    with watched(browser, mixed, width=width, height=height, scheme=scheme, ready="#plot .main-svg") as (page, _):
        assert 1 < len(lines(page)) <= 8
        assert page.locator("#finals-table tr.own").count() == page.locator("#list .badge").count() == 1
        assert page.evaluate("document.documentElement.scrollHeight") < MOST_PIXELS
        assert page.evaluate("document.documentElement.scrollWidth") == width
        ratios = page.evaluate(CONTRASTS)
        assert ratios["theme"] == scheme
        assert ratios["text"] >= 4.5
        assert ratios["curves"] >= 3
        assert ratios["controls"] >= 3
        assert page.evaluate("byId('plot')._fullLayout.dragmode") == ("zoom" if width > 1000 else False)
        found = Axe().run(page)
        assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found.response["violations"]] == []


def test_everything_has_a_name_and_can_be_reached_by_keyboard(page):
    assert "4 of 4 curves shown" in page.get_attribute("#plot", "aria-label")
    page.focus("a.skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("a.skip")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    wanted = {"metric", "axis", "log-x", "curves-in", "curves-svg", "filter", "hide-all", "reference"}
    assert wanted | {"finals-csv", "fields-csv"} <= reached
    assert any(name.startswith("show-") for name in reached)
