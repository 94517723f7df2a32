"""A small experiment in steps, on digits."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.core.input import dataset as data_lib
from experiments.core.input.dataset import Data
from experiments.core.input.stream import Stream, of_arrays
from experiments.core.training import optimizer
from experiments.core.training.experiment import Experiment, Recipe


def toy_config(**fields: Any) -> ml_collections.ConfigDict:
    """Twenty steps with Adam on one device; `fields` may be nested."""
    config = ml_collections.ConfigDict(
        {
            "dataset": "digits",
            "split": "test",
            "validation_size": 100,
            "seeds": (3,),
            "steps": 20,
            "eval_every": 4,
            "checkpoint_every": 3,
            "batch_size": 64,
            "noise": 0.0,  # of the inputs in training
            "optimizer": {
                "name": "adam",
                "learning_rate": 1e-3,
                "momentum": 0.9,
                "schedule": "cosine",
                "warmup_steps": 4,
                "weight_decay": 0.1,
                "clip_norm": 1.0,
            },
        }
    )
    config.update(fields)
    return config


def inputs(images):
    return images.reshape(len(images), -1).astype(jnp.float32) / 16


def logits(params, x):
    hidden = jax.nn.relu(x @ params["first"]["kernel"])
    return hidden @ params["second"]["kernel"], hidden


def build(config: ml_collections.ConfigDict, data: Data, pretrained: Any = None) -> Experiment:
    def init(key):
        keys = jax.random.split(key)
        return {
            "first": {"kernel": jax.random.normal(keys[0], (64, 512)) / 8},
            "second": {"kernel": jax.random.normal(keys[1], (512, 10)) / 23},
        }

    def loss(params, batch, key, progress):
        x = inputs(batch["image"])
        scores, hidden = logits(params, x + config.noise * jax.random.normal(key, x.shape))
        value = optax.softmax_cross_entropy_with_integer_labels(scores, batch["label"]).mean()
        active = (hidden > 0).mean()
        return value + 0.1 * jnp.square(hidden).mean(), {"loss": value, "hidden": {"active": active}}

    def evaluate(params, examples, progress):
        scores, _ = logits(params, inputs(examples["image"]))
        hits = (scores.argmax(axis=-1) == examples["label"]).astype(jnp.float32)
        value = optax.softmax_cross_entropy_with_integer_labels(scores, examples["label"])
        return {"error": 100.0 * (1 - hits), f"{data.prefix}": {"loss": value}}

    return Experiment(init, loss, evaluate, optimizer.make(config), pretrained, headline=(f"{data.prefix}/loss",))


def load_streams(config: ml_collections.ConfigDict) -> Data:
    """The same data as streams."""
    data = data_lib.load(config)
    return dataclasses.replace(
        data,
        train_stream=of_arrays(data.train, config.batch_size, shuffled=True),
        evaluation_stream=of_arrays(data.evaluation, config.get("eval_batch_size"), shuffled=False),
    )


RECIPE = Recipe("toy", lambda config: None, build)
STREAMED = Recipe("toy", lambda config: None, build, load_streams)


STREAM = {"eval_batch_size": 128, "noise": 0.1, "eval_every": 4, "checkpoint_every": 3}


class Killed(Exception):
    """Stands for a kill: nothing that a run does on its way out comes after it."""


def kill() -> None:
    raise Killed


def watched(stream: Stream, before: Callable[[int], None], log: Callable[[str], None] = lambda what: None) -> Stream:
    """The stream, which calls `before` with the step of each batch, and `log` when it is opened and closed."""

    def opened(seed, rows):
        whole = stream.open(seed, rows)
        log("open")

        class Watched:
            def batch(self, step):
                before(step)
                return whole.batch(step)

            def close(self):
                log("close")
                whole.close()

        return Watched()

    return dataclasses.replace(stream, open=opened)


def killed_at(step: int, act: Callable[[], None] = kill) -> Recipe:
    """The toy, streamed, to which something happens (it breaks off) when the batch of `step` is asked for.

    That is two steps before it is used.
    """

    def load(config):
        data = load_streams(config)
        broken = watched(data.train_stream, lambda number: act() if number == step else None)
        return dataclasses.replace(data, train_stream=broken)

    return Recipe("toy", lambda config: None, build, load)


def values(row: Any) -> np.ndarray:
    """The numbers of a row that a run's hardware leaves alone, in order."""
    kept = {name: value for name, value in row.items() if name not in ("seconds", "performance")}
    return np.asarray(
        [np.nan if value is None else value for value in jax.tree.leaves(kept, is_leaf=lambda x: x is None)]
    )
