"""The claims, each with its figure, numbers and verdict, as HTML that is read without JavaScript, too."""

import base64
import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from experiments.core.report.finding import Claim, Finding, Measured, Verdict

_MEANINGS = (
    "Yes: most comparisons are for the claim, by their whole intervals, and none is against it. Mixed: some are "
    "against it, and more than a third for it. No: all else, and whatever is claimed of every case but fails in one. "
    "Answers are computed from the results: at the settings that the paper states, and at those that validation chose; "
    "for times, on our processors."
)
_WIDTH, _COLOURS = 900, 64  # of a figure in the page; its link leads to the whole
_WHOLE = re.compile(r"\b(?:(?:lam|p|k|n) = \d[\d.,/]*(?:e-?\d+)?(?<![.,])|\d+(?:\.\d+)?e-\d+|top-\w+)")


def cards(claims: Sequence[Claim], findings: Sequence[Finding | None], results: Path) -> str:
    """A section with a card for each claim; links to files go from the directory of results."""
    body = "\n".join(
        _card(number, claim, finding, results)
        for number, (claim, finding) in enumerate(zip(claims, findings, strict=True), start=1)
    )
    return f"""<section id="claims" aria-labelledby="claims-title">
<h2 id="claims-title">The paper's claims</h2>
<p>{_MEANINGS} Mean ± half width of the 95 % t-interval over seeds.</p>
{body}
</section>"""


def _card(number: int, claim: Claim, finding: Finding | None, results: Path) -> str:
    source = f'<p class="source">{html.escape(claim.source)}. The paper\'s number: {_text(claim.paper)}.</p>'
    if finding is None:
        found = '<p><span class="verdict unmeasured">not measured</span></p>'
        return f'<article class="claim"><div><h3>{_text(claim.says)}</h3>{source}{found}</div></article>'
    answers = "; ".join(
        f"{how}: {_answer(verdict)}"
        for how, verdict in (("as the paper sets it", finding.as_stated), ("tuned by us", finding.tuned))
        if verdict
    )
    return f"""<article class="claim"><div><h3>{_text(claim.says)}</h3>{source}
<p class="plain">{_text(finding.plain)}</p><p>{answers[0].upper()}{answers[1:]}. Measured on: {_text(finding.on)}.</p>
{_numbers(finding, number)}
<details><summary>How it was made</summary><p>{_sources(claim)}</p></details></div>
{_figure(claim, results)}</article>"""


def _answer(verdict: Verdict) -> str:
    told = f'<span class="verdict {verdict.answer.split()[0]}">{verdict.answer}</span>'
    return f"{told} ({_text(verdict.number)})" if verdict.number else told


def _numbers(finding: Finding, number: int) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_text(one.name)}</th><td class="number"{_exact(one)}>{_text(_value(one))}</td></tr>'
        for one in finding.measured
    )
    heads = f'<th scope="col">case</th><th scope="col" class="number">{_text(finding.unit)}</th>'
    table = f'<table id="claim-{number}-table"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Numbers of claim {number}">{table}</div>'


def _exact(one: Measured) -> str:
    """What the table is saved with."""
    value = "" if one.mean is None else f' data-value="{one.mean:.9g}"'
    return value if one.half is None else f'{value} data-half="{one.half:.9g}"'


def _value(one: Measured) -> str:
    if one.mean is None:
        return one.instead
    return f"{round(one.mean, 9):.4g}" if one.half is None else f"{one.mean:.2f} ± {one.half:.2f}"


def _text(text: str) -> str:
    """As HTML, in which no line ends within `lam = 1e-4` or `top-3`."""
    return _WHOLE.sub(r'<span class="whole">\g<0></span>', html.escape(text))


def _figure(claim: Claim, results: Path) -> str:
    """Shows our figure for the claim, if the results have it."""
    path = results / claim.figure
    if not (claim.figure and path.exists()):
        return ""
    shown = f'<img src="{_small(path)}" alt="Figure of: {html.escape(claim.says, quote=True)}">'
    return (
        f'<figure><a href="{quote(claim.figure)}">{shown}</a><figcaption>{html.escape(path.name)}</figcaption></figure>'
    )


def _small(path: Path) -> str:
    """An image as an address that holds it, of a size for the page."""
    with Image.open(path) as image:
        height = round(image.height * _WIDTH / image.width)
        small = image.convert("RGB").resize((_WIDTH, height), Image.Resampling.LANCZOS).quantize(_COLOURS)
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _sources(claim: Claim) -> str:
    parts = []
    if claim.config:
        parts.append(f'<a href="{quote(f"../{claim.config}")}">{html.escape(claim.config)}</a>')
    parts += [f"<code>{html.escape(command)}</code>" for command in claim.commands]
    parts += [f'<a href="{quote(f"../{page}")}">{html.escape(page)}</a>' for page in claim.pages]
    return ", ".join(parts)
