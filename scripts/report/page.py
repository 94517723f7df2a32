"""The page of the claims as HTML without JavaScript: a line a claim, then a folded section a claim."""

import base64
import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from experiments.core.report.finding import Finding, Verdict
from scripts.report.claims import Claim

_STYLE = Path(__file__).with_name("page.css")
_LEAD = (
    "Every claim of <cite>Fast, Differentiable and Sparse Top-k: a Convex Analysis Perspective</cite> (ICML 2023) that "
    "runs or timings can test, and our answers; each links to its figure, its numbers and how they were made."
)
_HEADER = "".join(f'<th scope="col">{name}</th>' for name in ("claim", "as the paper sets it", "tuned by us"))
_MEANINGS = (
    "<strong>Yes</strong>: most comparisons favour the claim by their whole 95&nbsp;% interval, none is against it. "
    "<strong>Mixed</strong>: more than a third favour it, some are against it. <strong>No</strong>: all else, ties "
    "included; one counterexample refutes a claim about every case. <strong>Tuned by us</strong>: at settings chosen "
    "on validation; for times, on our processors. ±: half width of the 95&nbsp;% t-interval over seeds."
)
_END = (
    "To explore the runs themselves, <code>make compare RUNS=results/mnist_pruning</code> writes a page with the "
    "curves, final values and configs of all runs in that directory."
)
_WIDTH, _COLOURS = 900, 64  # of a figure in the page; its link leads to the whole
_UNBROKEN = re.compile(r" (?=[=±%])|(?<=[=±]) ")


def page(claims: Sequence[Claim], findings: Sequence[Finding | None], results: Path) -> str:
    """Returns the page.

    Args:
      claims: of the paper.
      findings: on each of them; None where there are no results.
      results: the directory that the page lies in, whose figures it shows and links to.
    """
    told = list(enumerate(zip(claims, findings, strict=True), start=1))
    rows = "\n".join(_row(number, claim, finding) for number, (claim, finding) in told)
    sections = "\n".join(_section(number, claim, finding, results) for number, (claim, finding) in told)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>Claims and results</title>
<style>{_STYLE.read_text()}</style>
</head>
<body>
<main>
<h1>Does the paper hold up?</h1>
<p>{_LEAD}</p>
<table class="summary">
<thead><tr>{_HEADER}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p class="faint">{_MEANINGS}</p>
<h2>The claims one by one</h2>
{sections}
{_links(results)}
<p>{_END}</p>
</main>
</body>
</html>
"""


def _row(number: int, claim: Claim, finding: Finding | None) -> str:
    answers = (_answer(finding.as_stated), _answer(finding.tuned)) if finding else ("not measured", "-")
    cells = "".join(f"<td>{answer}</td>" for answer in answers)
    return f'<tr><th scope="row"><a href="#claim-{number}">{_text(claim.short)}</a></th>{cells}</tr>'


def _answer(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    told = f'<strong class="{verdict.answer.split()[0]}">{verdict.answer}</strong>'
    return f"{told}: {_text(verdict.number)}" if verdict.number else verdict.answer


def _section(number: int, claim: Claim, finding: Finding | None, results: Path) -> str:
    # A link to an element inside a closed <details> opens it; a link to the <details> itself does not.
    return f"""<details>
<summary><h3>{_text(claim.short)}</h3></summary>
<div class="claim" id="claim-{number}"><div>
<p>{_text(claim.says)}</p>
<p class="faint">{_text(f"{claim.source}. The paper's number: {claim.paper}.")}</p>
{_found(finding) if finding else "<p>Not measured.</p>"}
<p class="faint">How it was made: {_sources(claim)}.</p>
</div>
{_figure(claim, results)}</div>
</details>"""


def _found(finding: Finding) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td class="number">{_text(value)}</td></tr>'
        for name, value in finding.measured.items()
    )
    return f"""<p class="plain">{_text(finding.plain)}</p>
<ul>
<li>As the paper sets it: {_answer(finding.as_stated)}</li>
<li>Tuned by us: {_answer(finding.tuned)}</li>
<li>Measured on: {_text(finding.on)}</li>
</ul>
<table>
<thead><tr><th scope="col">case</th><th scope="col" class="number">{_text(finding.unit)}</th></tr></thead>
<tbody>{rows}</tbody>
</table>"""


def _sources(claim: Claim) -> str:
    config = [_link(f"../{claim.config}", claim.config)] if claim.config else []
    commands = [f"<code>{html.escape(command)}</code>" for command in claim.commands]
    return ", ".join([*config, *commands, *(_link(f"../{page}", page) for page in claim.pages)])


def _figure(claim: Claim, results: Path) -> str:
    """Shows our figure for the claim, if the results have it."""
    path = results / claim.figure
    if not (claim.figure and path.exists()):
        return ""
    image = f'<img src="{_small(path)}" alt="Figure of: {html.escape(claim.says)}">'
    return f'<figure><a href="{quote(claim.figure)}">{image}</a></figure>\n'


def _small(path: Path) -> str:
    """Makes an address that holds the image, of a size for the page."""
    with Image.open(path) as image:
        height = round(image.height * _WIDTH / image.width)
        small = image.convert("RGB").resize((_WIDTH, height), Image.Resampling.LANCZOS).quantize(_COLOURS)
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _links(results: Path) -> str:
    """Lists the pages of the results, each by its title, with its figures."""
    items = []
    for page in sorted([*results.glob("*/README.md"), *results.glob("*/captions.md")]):
        with page.open() as lines:
            links = [_link(page.relative_to(results).as_posix(), next(lines).lstrip("# ").rstrip())]
        figures = sorted(page.parent.glob("**/*.png"))
        links += [_link(path.relative_to(results).as_posix(), path.stem) for path in figures]
        items.append(f"<li>{', '.join(links)}</li>")
    return "\n".join(["<h2>Results and figures</h2>", "<ul>", *items, "</ul>"]) if items else ""


def _link(target: str, text: str) -> str:
    return f'<a href="{html.escape(quote(target))}">{html.escape(text)}</a>'


def _text(text: str) -> str:
    """Makes HTML of a text, in which no line ends within `lam = 1e-4`, `5.07 ± 0.07` or `10 %`."""
    return _UNBROKEN.sub("\u00a0", html.escape(text))
