"""The table of claims, as HTML that is read without JavaScript, too."""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from experiments.core.report.finding import Claim, Finding

_NAMES = ("the paper says", "the paper's number", "ours", "verdict", "made by")
_MEANINGS = (
    "Reproduced: holds by the rule beside the verdict. Partly: under conditions other than the paper's, or in part. "
    "Not: measured, and does not hold. Substitute: measured on something smaller or other than what the paper used, "
    "which cannot settle it. Not measured: the results hold nothing on it. Verdicts are computed from the results."
)


def table(claims: Sequence[Claim], findings: Sequence[Finding | None], results: Path) -> str:
    """A section with a row for each claim; links to files go from the directory of results."""
    heads = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in _NAMES)
    rows = "\n".join(_row(claim, finding, results) for claim, finding in zip(claims, findings, strict=True))
    return f"""<section id="claims" aria-labelledby="claims-title">
<h2 id="claims-title">The paper's claims</h2>
<p>{_MEANINGS} Mean ± half width of the 95 % t-interval over seeds.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Table of claims">
<table class="claims" role="table"><thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{rows}
</tbody></table></div></section>"""


def _row(claim: Claim, finding: Finding | None, results: Path) -> str:
    says = f"{_text(claim.says)} <small>{html.escape(claim.source)}</small>"
    ours = _text(finding.ours).replace("; ", ";<br>") if finding else "-"
    if finding:
        verdict = f'<span class="verdict {finding.verdict}">{finding.verdict}</span><br>{_text(finding.why)}'
    else:
        verdict = '<span class="verdict unmeasured">not measured</span>'
    columns = [_text(claim.paper), ours, verdict, _sources(claim, results)]
    body = "".join(
        f'<td role="cell" data-name="{name}">{cell}</td>' for name, cell in zip(_NAMES[1:], columns, strict=True)
    )
    return f'<tr role="row"><th scope="row" role="rowheader">{says}</th>{body}</tr>'


def _text(text: str) -> str:
    """As HTML, in which no line ends at the hyphen of 1e-4 or top-3."""
    return re.sub(r"\b(\d+(\.\d+)?e|top)-\d+", r'<span class="whole">\g<0></span>', html.escape(text))


def _sources(claim: Claim, results: Path) -> str:
    parts = []
    if claim.figure and (results / claim.figure).exists():
        parts.append(f'<a href="{quote(claim.figure)}">figure</a>')
    if claim.config:
        parts.append(f'<a href="{quote(f"../{claim.config}")}">{html.escape(Path(claim.config).name)}</a>')
    if claim.command:
        parts.append(f"<code>{html.escape(claim.command)}</code>")
    return "<br>".join(parts) or "-"
