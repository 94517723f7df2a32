"""How long a comparison of many long runs takes, and how large its page is: `python -m scripts.bench.pages`.

Writes runs of noise to a temporary directory, two seeds each, then reads them and makes the page that
`python -m scripts.compare` makes. Writes the section `pages` of `<results>/<hardware>.json`. Fails if that takes a
processor too long, or if the page is too large to open with pleasure.
"""

import hashlib
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from configs import mnist_pruning
from experiments.core import console
from experiments.core.config import to_json
from experiments.core.record import metrics
from experiments.core.record.files import write_json
from experiments.core.record.summary import summarize
from experiments.core.record.workdir import Workdir
from scripts.bench import record
from scripts.compare.__main__ import make
from scripts.compare.groups import group
from scripts.compare.workdirs import find

LIMIT_SECONDS, LIMIT_MB = 30.0, 8.0
SPIKE = 77.0  # one row of each run, which the page has to show


def write_run(path: Path, number: int, rows: int) -> None:
    """A finished run with a row per epoch; runs differ in lam."""
    path.mkdir()
    workdir = Workdir(path)
    config = mnist_pruning.get_config()
    config.lam.start = 1e-4 * 1.05**number
    config.update(epochs=rows - 1, seeds=(0, 1))
    write_json(workdir.config, to_json(config))
    noise = np.random.default_rng(number).normal(size=(rows, 6)).round(5).tolist()
    lines = []
    for epoch, (a, b, c, d, e, f) in enumerate(noise):
        level = 90 * math.exp(-6 * epoch / rows) + 5
        level = SPIKE if epoch == rows // 2 else level
        lines.append(
            f'{{"epoch": {epoch}, "step": {468 * epoch}, "seconds": {0.3 * epoch:.4f}, "diverged": [false, false], '
            f'"train_loss": [{level / 40 + abs(a) / 9:.7f}, {level / 40 + abs(b) / 9:.7f}], '
            f'"test_error": [{level + c:.7f}, {level + d:.7f}], "train_density": [0.1, 0.1], '
            f'"accuracy": {{"1": [{100 - level + e:.7f}, {100 - level + f:.7f}], "5": [99.5, 99.75]}}}}\n'
        )
    workdir.metrics.write_text("".join(lines))
    sha256 = hashlib.sha256(workdir.metrics.read_bytes()).hexdigest()
    last = metrics.read(workdir.metrics)[-1]
    write_json(workdir.summary, summarize([0, 1], last) | {"metrics_sha256": sha256})


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit status."""
    parser = record.parser("scripts.bench.pages", __doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=10_000, help="of each run")
    options = record.parse(parser, arguments)
    environment = record.begin("scripts.bench.pages", arguments, options.results)
    with tempfile.TemporaryDirectory(prefix="comparison-") as name:
        directory, out = Path(name, "runs"), Path(name, "page")
        directory.mkdir()
        print(f"writing {options.runs} runs of {options.rows} rows", flush=True)
        for number in range(options.runs):
            write_run(directory / f"run{number:03d}", number, options.rows)
        start = time.perf_counter(), time.process_time()
        found = find([str(directory)])
        read = time.perf_counter()
        groups = group(found)
        page = make(found, groups, out)
        done = time.perf_counter(), time.process_time()
        megabytes = page.stat().st_size / 1e6
    measured = {
        "runs": options.runs,
        "rows": options.rows,
        "groups": len(groups),
        "read_seconds": round(read - start[0], 2),
        "page_seconds": round(done[0] - read, 2),
        "processor_seconds": round(done[1] - start[1], 2),
        "megabytes": round(megabytes, 2),
    }
    limits = {"processor_seconds": LIMIT_SECONDS, "megabytes": LIMIT_MB}
    document = {"load_average": record.load_average(), "limits": limits, "pages": [measured]}
    line = (
        "read in {read_seconds} s, page made in {page_seconds} s ({processor_seconds} s of a processor): {megabytes} MB"
    )
    print(line.format(**measured))
    print(f"results are in {record.write(options.results, 'pages', environment, document)}")
    if len(groups) != options.runs or megabytes > LIMIT_MB or measured["processor_seconds"] > LIMIT_SECONDS:
        print(
            f"error: the page is to show {options.runs} groups, to be made in {LIMIT_SECONDS} s of a processor and to "
            f"have at most {LIMIT_MB} MB",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    console.run(main)
