"""The paper's figures about the operators: `python -m scripts.paper_figures`.

Computes what they show, and reads the timings of Figure 4. Writes PNG and SVG files and `captions.md` to
results/figures. The same code and timings give the same bytes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.core import console
from experiments.core.errors import in_one_line
from scripts.paper_figures import drawings
from scripts.paper_figures.setting import Setting


def main(arguments: Sequence[str]) -> int:
    """The command; 1 if nothing could be drawn."""
    parser = argparse.ArgumentParser(prog="python -m scripts.paper_figures", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--out", type=Path, default=Path("results/figures"), help="directory to write to")
    parser.add_argument("--bench", type=Path, default=Setting.bench, help="directory with the timings of Figure 4")
    options = parser.parse_args(arguments)

    def work() -> int:
        written = drawings.make(options.out, Setting(bench=options.bench))
        for path in written:
            print(path)
        return 0 if written else 1

    return in_one_line(work)


if __name__ == "__main__":
    console.run(main)
