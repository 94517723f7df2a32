"""Batches decoded and augmented on the host, ahead of the training, by worker processes or threads: Grain.

config.input.recipe          on the host inception, big_vision or none (`images.py`), on the device inception,
                             crop, crop_flip or none
            .size            side of the images that result, in pixels
            .augment_on      "host": here, for training and evaluation, in runs of one seed whose length is in steps
                             and that have config.eval_batch_size; or "device": in `augment.py`
            .workers         processes that make batches; 0 for threads of this one
            .prefetch        batches to have ready, beside those under way in the workers

Which examples make up a batch (`stream.py`), in which order, and how each is augmented are functions of the seed, the
step and the row of the batch alone: nothing is saved, and a run resumes at any step on any machines.

Work is handed out in pieces of a batch. Up to twice `prefetch` batches that are ready lie in /dev/shm: a container must
be given as much (at 384 pixels 226 MB for a batch of 512).
"""

import dataclasses
import functools
import math
import os
import signal
import weakref
from typing import Any

import ml_collections
import numpy as np
from absl import flags

from experiments.core.config import require, require_one_of
from experiments.core.input import augment
from experiments.core.input.examples import Examples
from experiments.core.input.images import EVALUATION, TRAIN
from experiments.core.input.stream import Arrays, Stream, batch_indices, blank
from experiments.core.record.environment import processors, when_the_parent_ends

RECIPES = {"host": tuple(TRAIN), "device": tuple(augment.TRAIN)}  # by config.input.augment_on
_PIECE = 32  # rows: at 384 pixels 14 MB; at 32 pixels still a hundred times what its dispatch costs
_STEPS = 2**31 - 1  # more than anyone takes
_AUGMENTATION = 1  # keeps the draws of a row apart from the permutation of an epoch, which has fewer words of seed
_WORKER_THREADS = 2  # one decodes while the other waits for the disk


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.input`."""
    field = config.input
    require_one_of("input.augment_on", field.augment_on, RECIPES)
    require_one_of("input.recipe", field.recipe, RECIPES[field.augment_on])
    require(0 < field.size <= 8192, "input.size", field.size, "positive and at most 8192")
    require(0 <= field.workers <= 1024, "input.workers", field.workers, "0 (threads), or at most 1024 processes")
    require(0 < field.prefetch <= 1024, "input.prefetch", field.prefetch, "positive and at most 1024")
    if field.augment_on == "host":
        size, on_host = config.get("eval_batch_size"), "where input.augment_on='host'"
        require(size is not None and size > 0, "eval_batch_size", size, f"positive {on_host}")
        require(len(config.seeds) == 1, "seeds", config.seeds, f"a single one {on_host}")
        require(config.get("steps") is not None, "steps", None, f"given, and epochs left out, {on_host}")


@dataclasses.dataclass(frozen=True)
class Job:
    """Batches row by row, as pure functions of the step; it can be sent to other processes.

    With a seed, examples are shuffled anew in each epoch, and augmented; without one each comes once, in order.
    """

    examples: Examples
    recipe: str
    size: int
    batch_size: int
    seed: int | None = None

    @property
    def period(self) -> int:
        """The number of steps after which those that ask begin again at 0."""
        return math.ceil(len(self.examples) / self.batch_size) if self.seed is None else _STEPS

    def row(self, step: int, row: int) -> Arrays:
        """One row of the batch of a step."""
        example = self.examples[int(batch_indices(self.seed, step, len(self.examples), self.batch_size)[row])]
        if self.seed is None:
            return example | {"image": EVALUATION[self.recipe](example["image"], self.size)}
        rng = np.random.default_rng((self.seed, step, row, _AUGMENTATION))
        return example | {"image": TRAIN[self.recipe](rng, example["image"], self.size)}


def stream(config: ml_collections.ConfigDict, examples: Examples, *, train: bool) -> Stream:
    """Batches of a valid config: `image` [R, S, S, C] in uint8 and `label` [R, ...], for R rows.

    To train, of `config.batch_size`, shuffled and augmented; else of `config.eval_batch_size`, each example once.
    """
    field, size = config.input, config.batch_size if train else config.eval_batch_size

    def opened(seed: int, rows: np.ndarray) -> Batches:
        job = Job(examples, field.recipe, field.size, size, seed if train else None)
        return Batches(job, rows, workers=field.workers, prefetch=field.prefetch)

    row = examples.blank
    image = blank((field.size, field.size, row["image"].shape[-1]), np.uint8)
    return Stream(len(examples), opened, row | {"image": image})


class Batches:
    """This process's rows of the batches of a job, made ahead in the order in which they are asked for.

    Steps in succession are quick, 0 being next to the last of a period; any other starts the workers anew, which takes
    seconds. Processes or threads are held until it is closed, or until this process ends.
    """

    def __init__(self, job: Job, rows: np.ndarray, *, workers: int, prefetch: int):
        self._job, self._workers, self._prefetch = job, workers, prefetch
        self._pieces = np.array_split(np.asarray(rows), math.ceil(len(rows) / _PIECE))
        self._next = 0
        self._iterators: list[Any] = []  # one while there are workers, else none
        # Also when this object is collected, and when the interpreter exits.
        weakref.finalize(self, _close_all, self._iterators)

    def batch(self, step: int) -> Arrays:
        """The rows of the batch of `step`."""
        if not 0 <= step < self._job.period:
            raise IndexError(f"step {step} of {self._job.period}")
        if not self._iterators or step != self._next:
            self._start(step)
        self._next = (step + 1) % self._job.period
        pieces = [next(self._iterators[0]) for _ in self._pieces]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def close(self) -> None:
        """Ends workers and threads; another `batch` starts them again."""
        _close_all(self._iterators)

    def _start(self, step: int) -> None:
        import grain  # whoever does not stream need not wait for it

        # Grain looks up flags of its own, which absl refuses outside a program that has parsed its command line.
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        self.close()
        threads = _WORKER_THREADS if self._workers else len(processors())
        ahead = self._prefetch * len(self._pieces)
        pieces = grain.MapDataset.range(_STEPS * len(self._pieces))
        dataset = pieces.map(functools.partial(_piece, self._job, self._pieces, step)).to_iter_dataset(
            grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads if self._workers else ahead + threads)
        )
        if self._workers:
            options = grain.MultiprocessingOptions(self._workers, math.ceil(ahead / self._workers))
            dataset = dataset.mp_prefetch(options, worker_init_fn=_live_as_long_as_the_parent)
        self._iterators.append(iter(dataset))


def _piece(job: Job, pieces: list[np.ndarray], first_step: int, number: int) -> Arrays:
    """A piece of a batch, of those of all batches from `first_step` on."""
    step, piece = divmod(number, len(pieces))
    rows = [job.row((first_step + step) % job.period, int(row)) for row in pieces[piece]]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _close_all(iterators: list[Any]) -> None:
    # Nothing else may refer to an iterator of Grain: one that outlived its modules would complain at exit.
    while iterators:
        iterators.pop().close()


def _live_as_long_as_the_parent(index: int, count: int) -> None:
    """Begins a worker: it ends when told to or with its parent, to which it leaves signals."""
    del index, count
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    when_the_parent_ends(lambda: os._exit(1))
