"""The page of results: the claims come first, with or without a browser."""

import html
import re

import pytest

from experiments.mnist_pruning.report import figures, table
from scripts.report import __main__ as report
from scripts.report import operators
from scripts.report.claims import CLAIMS
from tests.scripts.browser import watched
from tests.scripts.workdirs import write_workdir

QUICK = tuple(claim for claim in CLAIMS if claim.find.__module__ != operators.__name__)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Those of a small pruning experiment, and the page of them."""
    directory = tmp_path_factory.mktemp("results")
    start = [90.0, 88.0, 89.0]
    for name, fields in (("hard", {"method": "hard"}), ("relaxed", {"p": 2.0})):
        errors = [9.0, 8.0, 9.5] if name == "hard" else [7.0, 6.5, 7.0]
        write_workdir(directory / "mnist_pruning" / f"final-{name}", [start, errors], **fields)
    table.make(directory / "mnist_pruning")
    figures.make(directory / "mnist_pruning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "CLAIMS", QUICK)
        assert report.main([str(directory)]) == 0
        first = (directory / "index.html").read_bytes()
        assert report.main([str(directory)]) == 0
    assert (directory / "index.html").read_bytes() == first
    return directory


def test_every_claim_has_a_row_with_the_papers_number_ours_and_a_verdict(results):
    page = (results / "index.html").read_text()
    body = page[page.index('<table class="claims"') :].partition("</table>")[0]
    assert {"1e-4", "top-3"} <= set(re.findall(r'<span class="whole">(.*?)</span>', body))
    whole = re.sub(r'<span class="whole">(.*?)</span>', r"\1", body)
    rows = [html.unescape(row) for row in whole.split('<tr role="row">')[2:]]
    assert len(rows) == len(QUICK)
    for row, claim in zip(rows, QUICK, strict=True):
        assert claim.says in row
        assert f'data-name="the paper\'s number">{claim.paper}<' in row
    assert '<span class="verdict reproduced">reproduced</span>' in rows[0]
    assert "p = 2, lam = 1e-4: -2.00 ± " in rows[0]
    assert '<span class="verdict unmeasured">not measured</span>' in rows[6]
    links = [link for row in rows for link in re.findall(r'href="(mnist[^"]*)"', row)]
    assert links
    assert all((results / link).exists() for link in links)


def test_it_is_not_a_directory(tmp_path, capsys):
    assert report.main([str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_the_page_opens_with_the_claims_and_fits_a_phone(results, browser):
    with watched(browser, results / "index.html", width=360, height=740) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.locator("main > section").first.get_attribute("id") == "claims"
        assert page.locator(".claims tbody tr").first.bounding_box()["width"] <= 360
        page.evaluate("document.querySelector('.claims').style.width = '2ch'")
        lines = "[...document.querySelectorAll('.whole')].map((node) => node.getClientRects().length)"
        assert set(page.evaluate(lines)) == {1}
        page.set_viewport_size({"width": 1280, "height": 900})
        assert page.locator(".claims thead").is_visible()
