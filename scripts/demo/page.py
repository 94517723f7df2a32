"""The page of the demo: a conclusion, a mask, each part's picture and tables, then the runs as in `scripts.compare`."""

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

_MASK = Path(__file__).resolve().parents[2] / "results" / "figures" / "mask.svg"
_STAND_IN = "Scikit-learn's digits and tiny networks stand in for the data and networks of the paper."
_OF_THE_MASK = (
    "The top-2 mask of an entry beside 2, 1, 0 and -1, as it grows. The hard mask jumps and has no gradient; relaxed "
    "ones slide within lam of the tie, and are exactly 0 or 1 elsewhere. So a network can learn what to select."
)
_INTERVAL = "&nbsp;±&nbsp;"
_WIDE = "width: 100%; min-width: 38rem; max-width: 64rem; background: #ffffff"  # scrolls on a phone
_SMALL = "width: 100%; max-width: 26rem; background: #ffffff"


def make(
    parts: Sequence[Part], conclusion: Sequence[str], verdicts: Mapping[Part, str], found: Found, out: Path
) -> Path:
    """Writes the page of the conclusion, of the parts with their verdicts, and of all runs; returns its path."""
    mask = _picture(_MASK, "image/svg+xml", "a mask", "the hard mask jumps from 0 to 1, the relaxed ones slide", _SMALL)
    before = [f'<section id="mask">\n<h2>The mask</h2>\n<p>{_OF_THE_MASK}</p>\n{mask}\n</section>']
    before += (_section(part, verdicts.get(part, ""), out / part.experiment) for part in parts)
    path = out / "index.html"
    data = contents(group(found), found.problems)
    summary = f"<p>{_STAND_IN}</p><p class='conclusion'>{html.escape(' '.join(conclusion))}</p>"
    write_atomically(path, page("The demo", data, summary=summary, before="\n".join(before)))
    return path


def _section(part: Part, verdict: str, directory: Path) -> str:
    drawn = f"{part.title}: the numbers of the tables, drawn"
    return f"""<section id="{part.title}">
<h2>{part.title.capitalize()}</h2>
<p>{html.escape(verdict).replace(" ± ", _INTERVAL)}</p>
{_picture(directory / part.figure, "image/png", part.title, drawn, _WIDE)}
<details><summary>Tables</summary>{tables((directory / "table.md").read_text(), part.title)}</details>
</section>"""


def _picture(path: Path, kind: str, name: str, alternative: str, style: str) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"""<figure class="scroll" tabindex="0" role="region" aria-label="Picture of {name}">
<img src="data:{kind};base64,{content}" alt="{alternative}" style="{style}">
</figure>"""


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
