"""Evaluation in batches is evaluation in one piece, whatever fills up the last batch."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.core.input.dataset import Data
from experiments.core.input.stream import InMemoryBatches, Stream
from experiments.core.training import evaluation
from experiments.core.training.experiment import Experiment, Recipe
from experiments.core.training.step import Program
from tests.experiments.toy import toy_config

VALUES = np.random.default_rng(0).normal(size=83).astype(np.float32)
POWERS = np.array([[1, 2]], np.float32)
DATA = Data({}, {"x": VALUES}, num_classes=2, prefix="test")


FIELDS = [{}, {"eval_batch_size": 40}, {"eval_batch_size": 16, "mesh": {"data": 4, "fsdp": 2}}]


def evaluate(params, examples, progress):
    scaled = params["scale"] * examples["x"]
    return {"scaled": scaled, "nested": {"positive": scaled > 0}, "progress": jnp.full_like(scaled, progress)}


EXPERIMENT = Experiment(
    init=lambda key: None,
    loss=lambda *arguments: None,
    evaluate=evaluate,
    optimizer=optax.identity(),
    examine=lambda params, examples: {"positive": params["scale"] * examples["x"] > 0},
)


def compiled(data=DATA, experiment=EXPERIMENT, scale=2.0, **fields):
    config = toy_config(**fields)
    evaluation.validate(config)
    params = {"scale": jnp.asarray(scale)}
    config.seeds = tuple(range(jnp.size(params["scale"])))
    data = dataclasses.replace(data, train={"label": np.zeros(100)})
    made = evaluation.make(Program(Recipe("toy", lambda config: None, lambda *_: experiment), config, data))
    made.compile(params)
    return made, params


def measure(*arguments, **fields):
    made, params = compiled(*arguments, **fields)
    return made(params, 0.25)


@pytest.mark.parametrize("fields", FIELDS)
def test_metrics_are_means_over_all_examples(fields):
    made, params = compiled(**fields)
    metrics = made(params, 0.25)
    assert metrics["scaled"] == pytest.approx(2 * VALUES.mean(), rel=1e-5)
    assert metrics["nested"]["positive"] == pytest.approx((VALUES > 0).mean())
    assert metrics["progress"] == pytest.approx(0.25)
    np.testing.assert_array_equal(made.examine(params)["positive"], [VALUES > 0])
    made, params = compiled(scale=[1.0, -3.0], **fields)
    np.testing.assert_allclose(made(params, 0.25)["scaled"], np.asarray([1, -3]) * VALUES.mean(), rtol=1e-5)
    np.testing.assert_array_equal(made.examine(params)["positive"], [VALUES > 0, VALUES < 0])


@pytest.mark.parametrize("fields", [{}, {"eval_batch_size": 40}])
def test_conclude_makes_metrics_from_means(fields):
    """A variance, of the means of values and of squares; of what fills up the last batch nothing is counted."""
    concluding = dataclasses.replace(
        EXPERIMENT,
        evaluate=lambda params, examples, progress: {"powers": (params["scale"] * examples["x"])[:, None] ** POWERS},
        conclude=lambda means: {"variance": means["powers"][1] - means["powers"][0] ** 2},
    )
    assert measure(experiment=concluding, **fields)["variance"] == pytest.approx(4 * VALUES.var(), rel=1e-4)
    seeds = measure(experiment=concluding, scale=[1.0, -3.0], **fields)
    np.testing.assert_allclose(seeds["variance"], np.asarray([1, 9]) * VALUES.var(), rtol=1e-4)


def test_a_stream_may_fill_up_with_anything():
    class Spoilt:
        def __init__(self, rows):
            self.whole = InMemoryBatches(DATA.evaluation, 40, rows)

        def batch(self, step):
            batch = self.whole.batch(step)
            if step == 2:
                batch["x"][3:] = np.nan
            return batch

    streamed = dataclasses.replace(
        DATA, evaluation={}, evaluation_stream=Stream(83, lambda seed, rows: Spoilt(rows), {"x": VALUES[0]})
    )
    assert measure(streamed, eval_batch_size=40)["scaled"] == pytest.approx(2 * VALUES.mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "shape"), [(lambda x: x.max(), r"\(\)"), (lambda x: x[:, None] ** POWERS, r"\(40, 2\)")]
)
def test_batched_metrics_must_be_per_example(metric, shape):
    whole = dataclasses.replace(EXPERIMENT, evaluate=lambda params, examples, progress: {"top": metric(examples["x"])})
    if shape == r"\(\)":
        assert measure(experiment=whole)["top"] == VALUES.max()
    with pytest.raises(ValueError, match=rf"metric \['top'\] has shape {shape}: .* one value per example, \(40,\)"):
        measure(experiment=whole, eval_batch_size=40)
