"""The page of the claims: every claim with its answers, and links that lead somewhere."""

import re
from urllib.parse import unquote

from experiments.core.report.finding import Finding, Verdict
from scripts.report import RESULTS, claims, readme
from scripts.report.page import PAGE, page


def test_a_section_a_claim_with_the_paper_our_page_and_its_figure():
    finding = Finding(Verdict("no", "error 8.72 higher"), None, "paper's task")
    findings = [finding, *[None] * (len(claims.CLAIMS) - 1)]
    made = page(claims.CLAIMS, readme.claims_table(claims.CLAIMS, findings), findings, RESULTS)
    assert made.count("<details>") == len(claims.CLAIMS)
    first = made.partition("<details>")[2].partition("</details>")[0]
    assert all(part in first for part in ("Measured on: paper's task", "Figure 5", "<img"))
    assert "<strong>no</strong>: error 8.72 higher" in made


def test_every_link_of_the_committed_page_leads_somewhere():
    links = re.findall(r'(?:href|src)="([^"#:]+)[#"]', (RESULTS / PAGE).read_text())
    assert len(links) > len(claims.CLAIMS)
    assert [link for link in links if not (RESULTS / unquote(link)).exists()] == []
