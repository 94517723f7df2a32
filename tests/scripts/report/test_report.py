"""The page of results: the claims come first, with or without a browser."""

import html
import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from experiments.mnist_pruning import report as pruning
from scripts.report import __main__ as report
from scripts.report import claims, operators
from tests.scripts.browser import wait_for, watched
from tests.scripts.workdirs import write_workdir

QUICK = tuple(claim for claim in claims.CLAIMS if claim.find.__module__ != operators.__name__)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Those of a small pruning experiment, and the page of them."""
    directory = tmp_path_factory.mktemp("results")
    start = [90.0, 88.0, 89.0]
    for name, fields in (("hard", {"method": "hard"}), ("relaxed", {"p": 2.0})):
        errors = [9.0, 8.0, 9.5] if name == "hard" else [7.0, 6.5, 7.0]
        write_workdir(directory / "mnist_pruning" / f"final-{name}", [start, errors], **fields)
    pruning.make(directory / "mnist_pruning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "CLAIMS", QUICK)
        assert report.main([str(directory)]) == 0
        first = (directory / "index.html").read_bytes()
        assert report.main([str(directory)]) == 0
    assert (directory / "index.html").read_bytes() == first
    return directory


def test_every_claim_has_its_figure_number_interval_verdict_and_a_plain_sentence(results):
    page = (results / "index.html").read_text()
    body = page[page.index('<section id="claims"') :].partition("</section>")[0]
    assert {"p = 2", "top-k", "top-3"} <= set(re.findall(r'<span class="whole">(.*?)</span>', body))
    whole = re.sub(r'<span class="whole">(.*?)</span>', r"\1", body)
    found = [html.unescape(part) for part in whole.split('<article class="claim">')[1:]]
    assert len(found) == len(QUICK)
    for card, claim in zip(found, QUICK, strict=True):
        assert f"<h3>{claim.says}</h3>" in card
        assert f"The paper's number: {claim.paper}." in card
    assert 'As the paper sets it: <span class="verdict yes">yes</span> (error 2.00 ± ' in found[0]
    assert "At the paper's lam relaxed top-k errs 2.00 ± " in found[0]
    assert re.search(r"relaxed top-k at the paper's lam, p = 2</th><td class=\"number\"[^>]*>-2.00 ± \d", found[0])
    assert '<img src="data:image/png;base64,' in found[0]
    assert '<span class="verdict unmeasured">not measured</span>' in found[6]
    links = [link for card in found for link in re.findall(r'href="(mnist[^"]*)"', card)]
    assert links
    assert all((results / link).exists() for link in links)


def test_it_is_not_a_directory(tmp_path, capsys):
    assert report.main([str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err


@pytest.fixture(scope="module")
def page(results, browser):
    """The page in a browser: tests leave it as it was, but for its size and its theme."""
    with watched(browser, results / "index.html") as (page, _):
        yield page


def test_the_page_opens_with_the_claims_on_pruning_and_fits_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 740})
    wait_for(page, "document.documentElement.scrollWidth", 360)
    assert page.locator("main > section").first.get_attribute("id") == "claims"
    assert page.locator(".claim").first.bounding_box()["width"] <= 360
    page.evaluate("document.querySelector('#claims').style.width = '2ch'")
    lines = "[...document.querySelectorAll('.whole')].map((node) => node.getClientRects().length)"
    assert set(page.evaluate(lines)) == {1}
    page.evaluate("document.querySelector('#claims').style.width = ''")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, scheme):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    wait_for(page, "document.documentElement.dataset.theme", scheme)
    found = Axe().run(page)
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found.response["violations"]] == []


def test_the_numbers_of_a_claim_are_saved_with_their_intervals(page):
    with page.expect_download() as download:
        page.click("#claim-1-csv")
    assert "half width of the 95 % interval" in download.value.path().read_text()
