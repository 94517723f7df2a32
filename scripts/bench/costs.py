"""The sections ``help``, ``pages`` and ``pipeline``: what `--help`, a page of many runs and the input pipeline cost."""

from __future__ import annotations

import functools
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

from experiments.core.input import augment
from experiments.core.input.examples import InMemory
from experiments.core.input.pipeline import Batches, Job
from scripts.bench.process import Case, Found, Group
from scripts.bench.record import ROOT
from scripts.bench.timing import Contest

_WARM_UP = 4  # batches: more than are made ahead, so that none that were ready count


def helps(scale: str) -> Group:
    """A case for each entry point."""
    names = entry_points()[:2] if scale == "small" else entry_points()
    return Group({}, [Case(name, functools.partial(_help, name)) for name in names])


def entry_points() -> list[str]:
    """The modules that can be run: packages with a `__main__`, and what the Makefile runs."""
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("experiments", "scripts")
        for path in (ROOT / top).glob("**/__main__.py")
    }
    made = re.findall(r"(?:\$\(RUN\)|/python -m) ((?:experiments|scripts)[\w.]+)", (ROOT / "Makefile").read_text())
    return sorted(packages | set(made))


def _help(module: str, _contest: Contest) -> Found:
    return {"rows": [{"module": module, "processor_seconds": _processor_seconds(module, "--help")}]}


def _processor_seconds(module: str, *arguments: str) -> float:
    """Runs a module as a user does, and counts the seconds of a processor that it takes."""
    before = os.times()
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return round(after.children_user + after.children_system - before.children_user - before.children_system, 3)


def pages(scale: str) -> Group:
    """One case: the page that `python -m scripts.compare` makes of the committed runs."""
    place = "results/vmoe" if scale == "small" else "results"
    return Group({"place": place}, [Case("page", functools.partial(_page, place))])


def _page(place: str, _contest: Contest) -> Found:
    with tempfile.TemporaryDirectory() as out:
        seconds = _processor_seconds("scripts.compare", place, f"--out={out}")
        size = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())
    return {"pages": [{"place": place, "processor_seconds": seconds, "megabytes": round(size / 1e6, 2)}]}


def pipeline(scale: str) -> Group:
    """A case for each recipe and size, on the host by threads and worker processes, and on the device."""
    seconds, tasks = 0.2, [("host", "inception", 32, 8, 0), ("device", "crop_flip", 32, 8, 0)]
    if scale != "small":
        sizes = (384, 64), (32, 512)
        seconds, tasks = 2.0, [("host", "inception", *size, workers) for size in sizes for workers in (0, 1, 2)]
        tasks.append(("device", "crop_flip", 32, 512, 0))
    cases = [Case(" ".join(map(str, task)), functools.partial(_rates, task, seconds)) for task in tasks]
    return Group({"seconds": seconds}, cases)


def _rates(task: tuple[str, str, int, int, int], seconds: float, _contest: Contest) -> Found:
    """Images a second of whole batches after the first ones, of noise in CIFAR's shape, with nothing trained."""
    where, recipe, size, batch_size, workers = task
    images = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), np.uint8)
    row = {"where": where, "recipe": recipe, "size": size, "batch_size": batch_size, "workers": workers}
    if where == "host":
        examples = InMemory({"image": images, "label": np.zeros(len(images), np.int32)})
        job = Job(examples, recipe, size, batch_size, seed=0)
        batches = Batches(job, np.arange(batch_size), workers=workers, prefetch=1)
        row |= _rate(batches.batch, batch_size, seconds)
        batches.close()
    else:
        train, batch = jax.jit(augment.TRAIN[recipe], static_argnums=2), jax.device_put(images[:batch_size])
        keys = jax.random.split(jax.random.key(0), 64)
        row |= _rate(lambda step: jax.block_until_ready(train(keys[step % 64], batch, size)), batch_size, seconds)
    return {"rows": [row]}


def _rate(make_batch: Callable[[int], Any], batch_size: int, seconds: float) -> dict[str, Any]:
    times: list[float] = []
    while len(times) < _WARM_UP + 2 or sum(times[_WARM_UP:]) < seconds:
        begun = time.perf_counter()
        make_batch(len(times))
        times.append(time.perf_counter() - begun)
    del times[:_WARM_UP]
    median = 1e3 * statistics.median(times)
    return {"images_per_s": batch_size * len(times) / sum(times), "median_ms_per_batch": median, "batches": len(times)}
