"""The page of the claims, `results/index.html`: a line a claim first, then a folded section a claim."""

import html
import os
import re
from collections.abc import Sequence
from pathlib import Path

import markdown

from experiments.core.report.finding import Finding
from scripts.report.claims import Claim

PAGE = "index.html"
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 64rem; padding: 0 1rem 3rem; font: 1rem/1.5 system-ui, sans-serif; }
a, summary { color: LinkText; }
img { width: 100%; max-width: 44rem; height: auto; background: #ffffff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid GrayText; }
summary { cursor: pointer; padding: .4rem 0; font-weight: 600; }
.scroll { overflow-x: auto; }
"""
_LEAD = """
Every claim of *Fast, Differentiable and Sparse Top-k: a Convex Analysis Perspective* (ICML 2023) that runs or timings
can test, and our answers. How they are found: [README.md](../README.md#what-holds). `make compare` shows the runs.
"""
_LINK = re.compile(r'( href="| src=")(?![a-z]+:|#)')
_IMAGE = re.compile(r"^!\[.*\]\(.*\)$", re.MULTILINE)


def page(claims: Sequence[Claim], rows: Sequence[str], findings: Sequence[Finding | None], results: Path) -> str:
    """Returns the page, which shows figures of the directory that it lies in.

    Args:
      claims: of the paper.
      rows: the table of the answers in Markdown, its head included, as README.md has it.
      findings: on each of the claims; None where there are no results.
      results: the directory that the page lies in.
    """
    pages = [claim.page for claim in claims]
    sections = "\n".join(
        _section(claim, finding, results, is_first=claim.page not in pages[:number])
        for number, (claim, finding) in enumerate(zip(claims, findings, strict=True))
    )
    answers = _html("\n".join(rows), results.parent, results)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Claims and results</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Does the paper hold up?</h1>
{_html(_LEAD, results, results)}
<div class="scroll" tabindex="0" role="region" aria-label="Answers">
{answers}
</div>
<h2>The claims one by one</h2>
{sections}
</main>
</body>
</html>
"""


def _section(claim: Claim, finding: Finding | None, results: Path, *, is_first: bool) -> str:
    """The claim in the paper's words and where it was measured; the first of a page also has its lead and figure."""
    directory = results.parent / claim.page
    told = [claim.says, f"Measured on: {finding.on}." if finding else "Not measured."]
    text = (directory / "README.md").read_text() if is_first and directory.is_relative_to(results) else ""
    told += text.partition("\n## ")[0].partition("\n<!--")[0].split("\n\n")[1:]
    told += [*_IMAGE.findall(text)[:1], f"[All of it](README.md) is in {claim.page}."]
    body = _html("\n\n".join(told), directory, results)
    return f"<details>\n<summary>{html.escape(claim.short)}</summary>\n{body}\n</details>"


def _html(text: str, directory: Path, results: Path) -> str:
    """HTML of Markdown that lies in a directory, its links those of a page in the results."""
    prefix = Path(os.path.relpath(directory, results)).as_posix()
    return _LINK.sub(rf"\1{prefix}/", markdown.markdown(text.strip(), extensions=["tables"]))
