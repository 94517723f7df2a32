"""Images a second that the input pipeline makes, with nothing trained: ``python -m scripts.bench.pipeline``.

On the host, by threads and by worker processes, and on the device; of CIFAR-100 where it is at hand, else of random
images of its shape, which cost the same. Rates are those of whole batches after the first ones; those of workers
depend on the cores that are free, so the load of the machine is recorded. Writes
the section ``pipeline`` of ``<results>/<hardware>.json``. About a minute on two cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.core import console
from experiments.core.errors import UsageError
from experiments.core.input import augment, sources
from experiments.core.input.examples import Examples, InMemory
from experiments.core.input.pipeline import Batches, TrainingJob
from scripts.bench import record

_MODULE = "scripts.bench.pipeline"
_WARM_UP = 4  # batches: more than are made ahead, so that none that were ready count


class Case(NamedTuple):
    """A recipe at a size, in batches of ``batch_size``."""

    recipe: str
    size: int
    batch_size: int


CASES = [Case("inception", 384, 64), Case("crop_flip", 32, 512)]
DEVICE_CASES = [Case("inception", 384, 64), Case("crop_flip", 32, 512), Case("inception", 32, 512)]


def images() -> tuple[Examples, str]:
    """Examples to augment, and what they are."""
    try:
        return sources.from_tfds("cifar100", None, download=False).train, "cifar100"
    except UsageError:
        rng = np.random.default_rng(0)
        size = 10_000
        arrays = {
            "image": rng.integers(0, 256, (size, 32, 32, 3), np.uint8),
            "label": rng.integers(0, 100, size).astype(np.int32),
        }
        return InMemory(arrays), "random images of 32 x 32 pixels: cifar100 is not in TFDS_DATA_DIR"


def host(examples: Examples, case: Case, workers: int, seconds: float) -> dict[str, Any]:
    """A record of the rate of ``pipeline.Batches``."""
    job = TrainingJob(examples, case.recipe, case.size, case.batch_size, seed=0)
    batches = Batches(job, np.arange(case.batch_size), workers=workers, prefetch=1)
    begun = time.perf_counter()
    batches.batch(0)
    first = time.perf_counter() - begun
    rate = _rate(lambda step: batches.batch(step), case.batch_size, seconds, 1)
    batches.close()
    return {"where": "host", **case._asdict(), "workers": workers, "first_batch_s": first, **rate}


def device(examples: Examples, case: Case, seconds: float) -> dict[str, Any]:
    """A record of the rate of ``augment.TRAIN``, on images that are on the device."""
    batch = jax.device_put(np.stack([examples[i]["image"] for i in range(case.batch_size)]))
    train = jax.jit(augment.TRAIN[case.recipe], static_argnums=2)
    keys = jax.random.split(jax.random.key(0), 64)

    def make(step: int) -> None:
        jax.block_until_ready(train(keys[step % 64], batch, case.size))

    return {"where": "device", **case._asdict(), "workers": None, **_rate(make, case.batch_size, seconds, 0)}


def _rate(make: Callable[[int], Any], batch_size: int, seconds: float, first_step: int) -> dict[str, Any]:
    """Images a second over ``seconds``, and by the median time of a batch."""
    for step in range(first_step, first_step + _WARM_UP):
        make(step)
    times: list[float] = []
    while sum(times) < seconds or len(times) < 2:
        begun = time.perf_counter()
        make(first_step + _WARM_UP + len(times))
        times.append(time.perf_counter() - begun)
    return {
        "images_per_s": batch_size * len(times) / sum(times),
        "median_ms_per_batch": 1e3 * statistics.median(times),
        "batches": len(times),
    }


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="processes; 0 for threads")
    parser.add_argument("--seconds", type=float, default=2.0, help="of timed batches, for each row")
    options = record.parse(parser, arguments)
    if min(options.workers) < 0:
        parser.error(f"--workers: must be at least 0, got {min(options.workers)}")
    environment = record.begin(_MODULE, arguments, options.results)

    before = record.load_average()
    examples, source = images()
    rows = []
    for case in CASES:
        for workers in options.workers:
            print(f"{case.recipe} at {case.size} on the host, {workers} workers", flush=True)
            rows.append(host(examples, case, workers, options.seconds))
    for case in DEVICE_CASES:
        print(f"{case.recipe} at {case.size} on the device", flush=True)
        rows.append(device(examples, case, options.seconds))
    document = {
        "images": source,
        "seconds": options.seconds,
        "load_average": {"before": before, "after": record.load_average()},
        "rows": rows,
    }
    path = record.write(options.results, "pipeline", environment, document)

    print(f"images: {source}")
    print(f"{'':10} {'pixels':>6} {'batch':>6}  {'where':22} images/s")
    for row in rows:
        where = "device" if row["where"] == "device" else f"host, {row['workers']} workers"
        print(f"{row['recipe']:10} {row['size']:6} {row['batch_size']:6}  {where:22} {row['images_per_s']:8.0f}")
    print(f"results are in {path}")
    return 0


if __name__ == "__main__":
    console.run(main)
