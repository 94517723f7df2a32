"""Copies the page of the committed results, and all that it links to: `python -m scripts.report.site OUT`.

Below OUT the files lie as they do in the repository, so that every link of `results/index.html` leads somewhere.
"""

import argparse
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from experiments.core import console
from experiments.core.errors import UsageError, in_one_line
from scripts.compare.workdirs import RESULTS


class _Links(HTMLParser):
    """The addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps where an anchor leads."""
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def copy(page: Path, root: Path, out: Path) -> list[Path]:
    """Copies a page and the files that it links to; returns their paths below `root`.

    Args:
      page: a file below `root`.
      root: what stays as it is below `out`.
      out: a directory, which is created.

    Raises:
      UsageError: there is no page, or a link leads to no file below the root.
    """
    if not page.exists():
        raise UsageError(f"{page} is missing: `make report` makes it")
    links = _Links()
    links.feed(page.read_text())
    places = [urlsplit(link) for link in links.found]
    files = [page.parent / unquote(place.path) for place in places if place.path and not place.scheme]
    copied = []
    for file in dict.fromkeys(path.resolve() for path in [page, *files]):
        if not (file.is_file() and file.is_relative_to(root.resolve())):
            raise UsageError(f"{page} links to {file}, which is no file below {root}")
        copied.append(file.relative_to(root.resolve()))
        target = out / copied[-1]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return copied


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.report.site", description=(__doc__ or "").split(":")[0])
    parser.add_argument("out", type=Path, help="a directory, which is created")
    out = parser.parse_args(arguments).out

    def work() -> int:
        copied = copy(RESULTS / "index.html", RESULTS.parent, out)
        print(f"{len(copied)} files: {out / copied[0]}")
        return 0

    return in_one_line(work)


if __name__ == "__main__":
    console.run(main)
