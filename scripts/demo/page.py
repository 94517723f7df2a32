"""The page of the demo: pictures and tables, then the runs as in `scripts.compare`."""

import base64
import html
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import markdown

from experiments.core.record.files import write_atomically
from scripts.compare.contents import contents
from scripts.compare.groups import group
from scripts.compare.page import page
from scripts.compare.workdirs import Found
from scripts.demo.parts import Part

_SUMMARY = (
    "<p>The experiments in little: scikit-learn's digits and tiny networks stand in for the data and networks of the "
    "paper.</p>"
)
_INTERVAL = "&nbsp;±&nbsp;"
_PICTURE = "width: 100%; min-width: 38rem; max-width: 64rem; background: #ffffff"  # scrolls on a phone


def make(parts: Sequence[Part], verdicts: Mapping[Part, str], found: Found, out: Path) -> Path:
    """Writes the page of the parts, with their verdicts, and of all runs; returns its path."""
    before = "\n".join(_section(part, verdicts.get(part, ""), out / part.experiment) for part in parts)
    path = out / "index.html"
    data = contents(group(found), found.problems)
    write_atomically(path, page("The demo", data, summary=_SUMMARY, before=before))
    return path


def _section(part: Part, verdict: str, directory: Path) -> str:
    picture = base64.b64encode((directory / part.figure).read_bytes()).decode()
    return f"""<section id="{part.title}">
<h2>{part.title.capitalize()}</h2>
<p>{html.escape(verdict).replace(" ± ", _INTERVAL)}</p>
<figure class="scroll" tabindex="0" role="region" aria-label="Picture of {part.title}">
<img src="data:image/png;base64,{picture}" alt="{part.title}: the numbers of the tables, drawn" style="{_PICTURE}">
</figure>
<details><summary>Tables</summary>{tables((directory / "table.md").read_text(), part.title)}</details>
</section>"""


def tables(text: str, title: str) -> str:
    """Returns tables in Markdown as HTML, in which each table scrolls by itself and each row has a header."""
    made = re.sub(
        r"<tr>\n<td>(.*?)</td>", r'<tr>\n<th scope="row">\1</th>', markdown.markdown(text, extensions=["tables"])
    )
    names = (f"{title}-{number}" for number in itertools.count(1))

    def opened(_: re.Match[str]) -> str:
        name = next(names)
        return f'<div class="scroll" tabindex="0" role="region" aria-label="Table {name}"><table id="{name}-table">'

    return re.sub("<table>", opened, made).replace("</table>", "</table></div>").replace(" ± ", _INTERVAL)
