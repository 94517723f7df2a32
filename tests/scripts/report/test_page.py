"""The page of the claims: an answer a line, a folded section a claim, read without JavaScript."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from experiments.core.report.finding import NOT_POSSIBLE, Finding, Verdict
from scripts.report import __main__ as report
from scripts.report import claims
from scripts.report.claims import Claim
from tests.scripts.browser import watched

MADE = ("configs/mnist_pruning.py", ("make mnist",), ("results/mnist_pruning/README.md",))
FINDING = Finding(
    "It errs 2.00 ± 0.10 points less at lam = 1e-4.",
    Verdict("yes", "error 2.00 ± 0.10 lower"),
    NOT_POSSIBLE,
    "a <stand-in>",
    "points of error",
    {"p = 2": "-2.00 ± 0.10", "p = 4/3": "0.5", "hard": "in 0 of 3 seeds"},
)
FOUND = Claim("It prunes", "It prunes better.", "Section 6", "5.9 %", lambda _: FINDING, "mnist/figures/a b.png", *MADE)
UNKNOWN = Claim("It routes", "It routes better.", "Section 7", "not stated", lambda _: None, "gone.png", *MADE)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results with a figure, a page of text, and the page of claims."""
    directory = tmp_path_factory.mktemp("results")
    figures = directory / "mnist" / "figures"
    figures.mkdir(parents=True)
    (directory / "mnist" / "README.md").write_text("# Pruning & more\n\nText.\n")
    Image.new("RGB", (1800, 600), "white").save(figures / "a b.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "CLAIMS", (FOUND, UNKNOWN))
        assert report.main([str(directory)]) == 0
        first = (directory / "index.html").read_bytes()
        assert report.main([str(directory)]) == 0
    assert (directory / "index.html").read_bytes() == first
    return directory


@pytest.fixture(scope="module")
def page(results, browser):
    """The page in a browser: tests leave it as it was, but for its size, its colours and its open sections."""
    with watched(browser, results / "index.html", ready="h1") as (page, _):
        yield page


def fold(page, opened):
    page.evaluate(f"document.querySelectorAll('details').forEach((node) => {{ node.open = {str(opened).lower()}; }})")


def test_a_line_has_the_answers_and_their_numbers(page):
    rows = page.locator(".summary tbody tr").all()
    found, unknown = ([cell.inner_text() for cell in row.locator("th, td").all()] for row in rows)
    assert found == ["It prunes", "yes: error 2.00\u00a0±\u00a00.10 lower", "not possible here"]
    assert unknown == ["It routes", "not measured", "-"]


def test_a_line_opens_its_section(page):
    fold(page, False)
    section = page.locator("#claim-1")
    assert not section.is_visible()
    page.click("a[href='#claim-1']")
    section.wait_for(state="visible")
    assert not page.locator("#claim-2").is_visible()
    text = section.inner_text().replace("\u00a0", " ")
    told = (
        FOUND.says,
        "Section 6. The paper's number: 5.9 %.",
        FINDING.plain,
        "Measured on: a <stand-in>",
        "make mnist",
    )
    assert [part for part in told if part not in text] == []
    numbers = [row.inner_text().replace("\u00a0", " ").split("\t") for row in section.locator("tr").all()]
    assert numbers == [
        ["case", "points of error"],
        ["p = 2", "-2.00 ± 0.10"],
        ["p = 4/3", "0.5"],
        ["hard", "in 0 of 3 seeds"],
    ]


def test_links_lead_to_files_and_figures_are_small(results):
    text = (results / "index.html").read_text()
    links = re.findall(r'href="([^"#]+)"', text)
    assert [link for link in links if not link.startswith("..")] == [
        "mnist/figures/a%20b.png",
        "mnist/README.md",
        "mnist/figures/a%20b.png",
    ]
    assert {"../configs/mnist_pruning.py", "../results/mnist_pruning/README.md"} < set(links)
    assert text.count('src="data:image/png;base64,') == 1  # the other claim's figure is not there
    assert ">Pruning &amp; more</a>" in text
    assert "<script" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (360, 740)])
def test_it_fits_desktop_and_phone_and_axe_finds_nothing(page, scheme, width, height):
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    fold(page, True)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    found = Axe().run(page)
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found.response["violations"]] == []
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")


def test_closed_sections_are_printed(page):
    fold(page, False)
    page.emulate_media(media="print")
    assert page.locator("#claim-2").bounding_box()["height"] > 0
    page.emulate_media(media="screen")


def test_it_is_not_a_directory(tmp_path, capsys):
    assert report.main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a directory" in capsys.readouterr().err
