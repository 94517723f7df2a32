"""The sections ``help``, ``pages`` and ``pipeline``: what `--help`, a page of many runs and the input pipeline cost."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs import mnist_pruning
from experiments.core.config import to_json
from experiments.core.errors import UsageError
from experiments.core.input import augment, sources
from experiments.core.input.examples import Examples, InMemory
from experiments.core.input.pipeline import Batches, Job
from experiments.core.record.files import write_json
from experiments.core.record.summary import summarize
from experiments.core.record.workdir import Workdir
from scripts.bench.process import Case, FailedError, Found, Group
from scripts.bench.record import ROOT
from scripts.bench.timing import Contest
from scripts.compare.__main__ import make
from scripts.compare.groups import group as group_runs
from scripts.compare.workdirs import find

HELP_LIMIT = 4.0
"""Seconds of a processor for a `--help`."""
PAGE_LIMITS = {"processor_seconds": 20.0, "megabytes": 8.0}
"""Limits of a page of 200 runs of 10,000 rows; the time aimed for is 10 s."""
_WARM_UP = 4  # batches: more than are made ahead, so that none that were ready count


def helps(scale: str) -> Group:
    """A case for each entry point."""
    names = entry_points()[:2] if scale == "small" else entry_points()
    return Group({"limit_seconds": HELP_LIMIT}, [Case(name, functools.partial(_help, name)) for name in names])


def entry_points() -> list[str]:
    """The modules that can be run: packages with a `__main__`, and what the Makefile runs."""
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("experiments", "scripts")
        for path in (ROOT / top).glob("**/__main__.py")
    }
    made = re.findall(r"(?:\$\(RUN\)|/python -m) ((?:experiments|scripts)[\w.]+)", (ROOT / "Makefile").read_text())
    return sorted(packages | set(made))


def ask(module: str) -> tuple[str, float]:
    """Starts a module as a user does; returns what its `--help` prints, and the seconds of a processor it takes.

    Raises:
      RuntimeError: it ends with another status than 0.
    """
    before = os.times()
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        raise RuntimeError(f"{module} --help ends with {done.returncode}: {done.stderr}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, used


def _help(module: str, contest: Contest) -> Found:
    del contest
    row = {"module": module, "processor_seconds": round(ask(module)[1], 3)}
    return {"rows": [row], "over_limits": _over(module, row["processor_seconds"], HELP_LIMIT)}


def _over(name: str, value: Any, limit: float) -> dict[str, str]:
    return {name: f"{value}, the limit is {limit}"} if value > limit else {}


def pages(scale: str) -> Group:
    """One case: the page that `python -m scripts.compare` makes of runs of noise."""
    runs, rows = (5, 100) if scale == "small" else (200, 10_000)
    settings = {"runs": runs, "rows": rows, "limits": PAGE_LIMITS}
    return Group(settings, [Case("page", functools.partial(_page, runs, rows))])


def _page(runs: int, rows: int, contest: Contest) -> Found:
    del contest
    with tempfile.TemporaryDirectory(prefix="comparison-") as name:
        directory, out = Path(name, "runs"), Path(name, "page")
        directory.mkdir()
        for number in range(runs):
            write_run(directory / f"run{number:03d}", number, rows)
        start, processor = time.perf_counter(), time.process_time()
        found = find([str(directory)])
        read = time.perf_counter()
        groups = group_runs(found)
        page = make(found, groups, out)
        row: dict[str, Any] = {"runs": runs, "rows": rows, "groups": len(groups)}
        row |= {"read_seconds": round(read - start, 2), "page_seconds": round(time.perf_counter() - read, 2)}
        row |= {"processor_seconds": round(time.process_time() - processor, 2)}
        row |= {"megabytes": round(page.stat().st_size / 1e6, 2)}
    if len(groups) != runs:
        raise FailedError(f"the page has {len(groups)} groups of {runs} runs")
    over = [_over(name, row[name], limit) for name, limit in PAGE_LIMITS.items()]
    return {"pages": [row], "over_limits": dict(itertools.chain(*map(dict.items, over)))}


def write_run(path: Path, number: int, rows: int) -> None:
    """Writes a finished run of two seeds with a row per epoch; runs differ in lam."""
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
        lines.append(
            f'{{"epoch": {epoch}, "step": {468 * epoch}, "seconds": {0.3 * epoch:.4f}, "diverged": [false, false], '
            f'"train_loss": [{level / 40 + abs(a) / 9:.7f}, {level / 40 + abs(b) / 9:.7f}], '
            f'"test_error": [{level + c:.7f}, {level + d:.7f}], "train_density": [0.1, 0.1], '
            f'"accuracy": {{"1": [{100 - level + e:.7f}, {100 - level + f:.7f}], "5": [99.5, 99.75]}}}}\n'
        )
    workdir.metrics.write_text("".join(lines))
    sha256 = hashlib.sha256(workdir.metrics.read_bytes()).hexdigest()
    write_json(workdir.summary, summarize([0, 1], json.loads(lines[-1])) | {"metrics_sha256": sha256})


def pipeline(scale: str) -> Group:
    """A case for each recipe and size, on the host by threads and worker processes, and on the device."""
    if scale == "small":
        seconds, tasks = 0.2, [("host", "inception", 32, 8, 0), ("device", "crop_flip", 32, 8, 0)]
    else:
        seconds, cases = 2.0, [("inception", 384, 64), ("inception", 32, 512)]
        tasks = [("host", *case, workers) for case in cases for workers in (0, 1, 2)]
        tasks.append(("device", "crop_flip", 32, 512, 0))
    named = {" ".join(map(str, task)): functools.partial(_rates, *task, seconds) for task in tasks}
    return Group({"seconds": seconds}, [Case(name, measure) for name, measure in named.items()])


def _rates(
    where: str, recipe: str, size: int, batch_size: int, workers: int, seconds: float, contest: Contest
) -> Found:
    """Images a second of whole batches after the first ones, with nothing trained."""
    del contest
    examples, source = _images()
    row = {"where": where, "recipe": recipe, "size": size, "batch_size": batch_size, "workers": workers}
    if where == "host":
        job = Job(examples, recipe, size, batch_size, seed=0)
        batches = Batches(job, np.arange(batch_size), workers=workers, prefetch=1)
        row |= _rate(batches.batch, batch_size, seconds)
        batches.close()
    else:
        batch = jax.device_put(np.stack([examples[i]["image"] for i in range(batch_size)]))
        train = jax.jit(augment.TRAIN[recipe], static_argnums=2)
        keys = jax.random.split(jax.random.key(0), 64)
        row |= _rate(lambda step: jax.block_until_ready(train(keys[step % 64], batch, size)), batch_size, seconds)
    return {"images": source, "rows": [row]}


def _images() -> tuple[Examples, str]:
    """CIFAR-100 where it is at hand, else random images of its shape, which cost the same."""
    try:
        return sources.from_tfds("cifar100", None, download=False).train, "cifar100"
    except UsageError:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (10_000, 32, 32, 3), np.uint8)
        arrays = {"image": images, "label": rng.integers(0, 100, len(images)).astype(np.int32)}
        return InMemory(arrays), "random images of 32 x 32 pixels: cifar100 is not in TFDS_DATA_DIR"


def _rate(make_batch: Callable[[int], Any], batch_size: int, seconds: float) -> dict[str, Any]:
    times: list[float] = []
    for step in itertools.count():
        begun = time.perf_counter()
        make_batch(step)
        if step >= _WARM_UP:
            times.append(time.perf_counter() - begun)
        if sum(times) >= seconds and len(times) > 1:
            break
    rate, median = batch_size * len(times) / sum(times), 1e3 * statistics.median(times)
    return {"images_per_s": rate, "median_ms_per_batch": median, "batches": len(times)}
