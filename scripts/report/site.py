"""Copies the page of the committed results and all that it links to: `python -m scripts.report.site OUT`.

Below OUT the files lie as they do in the repository, so that every link of `results/index.html` leads somewhere.
"""

import argparse
import html
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from experiments.core import console
from experiments.core.errors import UsageError, in_one_line
from scripts.report import RESULTS, ROOT

_FILE = re.compile(r'<a href="([^"#:]+)[#"]')  # and neither a section nor an address with a scheme


def copy(page: Path, root: Path, out: Path) -> list[Path]:
    """Copies a page below `root` and the files that it links to, to the same places below `out`; returns these places.

    Raises:
      UsageError: there is no page, or a link leads to no file below the root.
    """
    if not page.exists():
        raise UsageError(f"{page} is missing: `make report` makes it")
    links = [page.parent / unquote(html.unescape(link)) for link in _FILE.findall(page.read_text())]
    copied = []
    for file in dict.fromkeys(path.resolve() for path in (page, *links)):
        if not (file.is_file() and file.is_relative_to(root.resolve())):
            raise UsageError(f"{page} links to {file}, which is no file below {root}")
        copied.append(file.relative_to(root.resolve()))
        (out / copied[-1]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, out / copied[-1])
    return copied


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.report.site", description=(__doc__ or "").split(":")[0])
    parser.add_argument("out", type=Path, help="a directory, which is created")
    out = parser.parse_args(arguments).out

    def work() -> int:
        copied = copy(RESULTS / "index.html", ROOT, out)
        print(f"{len(copied)} files: {out / copied[0]}")
        return 0

    return in_one_line(work)


if __name__ == "__main__":
    console.run(main)
