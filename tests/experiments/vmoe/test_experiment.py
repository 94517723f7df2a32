"""The experiment on digits: its losses, precision and schedules; gradients: test_layer.py, a run: test_batches.py."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.input import dataset as data_lib
from experiments.core.training import evaluation
from experiments.core.training.step import Program
from experiments.vmoe import experiment as vmoe
from experiments.vmoe.experiment import RECIPE
from tests.experiments.vmoe.tiny import random_params, tiny_config

DATA = data_lib.load(tiny_config())
ONE_BLOCK = {"model__depth": 1, "moe__blocks": (0,)}  # where it matters not, as nearly all the time is compilation
KEY = jax.random.key(0)
HALF = jnp.float32(0.5)


def first(count, labels=None):
    """A batch of training images, as the trainer hands them over, with other labels perhaps."""
    batch = {name: array[:count] for name, array in DATA.train.items()}
    return batch if labels is None else batch | {"label": labels}


def logits_of(config, params, images):
    """Those of evaluation, through the network alone."""
    network = vmoe.make_model(config, 10, vmoe.make_router(config, config.router.lam.start))
    return network.apply({"params": params}, jnp.asarray(images, jnp.float32) / 127.5 - 1.0)


def sigmoid_loss(logits, labels):
    """Over all classes of an image."""
    return np.sum(np.logaddexp(0, logits) - labels * logits, axis=1)


def softmax_loss(logits, labels):
    """The cross-entropy with the average of the labels of an image; nothing if it has none."""
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    share = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    return -np.sum(share * logs, axis=1)


SEVERAL = (np.random.default_rng(1).uniform(size=(60, 10)) < 0.3).astype(np.uint8)
SEVERAL[0] = 0


@pytest.fixture(scope="module")
def evaluated():
    """Logits, and what both losses evaluate to with one label of an image and with several; compiled together."""
    configs = {name: tiny_config("small,router=hard", loss=name, **ONE_BLOCK) for name in ("sigmoid", "softmax")}
    params = random_params(configs["sigmoid"], DATA)

    @jax.jit
    def evaluate(params, *batches):
        found = {
            name: [RECIPE.build(config, DATA).evaluate(params, batch, HALF) for batch in batches]
            for name, config in configs.items()
        }
        return logits_of(configs["sigmoid"], params, batches[0]["image"]), found

    logits, found = evaluate(params, first(60), first(60, SEVERAL))
    return np.float64(logits), found


@pytest.mark.parametrize("name", ["sigmoid", "softmax"])
def test_losses_and_precision_match_numpy(name, evaluated):
    logits, of_losses = evaluated
    best = logits.argmax(axis=1)
    for found, labels in zip(of_losses[name], (np.eye(10)[first(60)["label"]], SEVERAL), strict=True):
        expected = {"sigmoid": sigmoid_loss, "softmax": softmax_loss}[name](logits, labels)
        np.testing.assert_allclose(found["test_loss"], expected, rtol=1e-4, atol=1e-5)
        hits = 100.0 * labels[np.arange(60), best]
        np.testing.assert_array_equal(found["test_precision_at_1"], hits)
        np.testing.assert_array_equal(found["error"], 100 - hits)
        assert {0.0, 100.0} == set(hits)


def test_auxiliary_loss_is_weighted():
    config = tiny_config("small,router=token_choice", **ONE_BLOCK)
    batch = first(60) | {"image": jnp.asarray(first(60)["image"], jnp.float32) / 127.5 - 1.0}
    loss, measured = jax.jit(RECIPE.build(config, DATA).loss)(random_params(config, DATA), batch, KEY, HALF)
    assert config.router.auxiliary * measured["auxiliary"] > 1e-4
    np.testing.assert_allclose(loss - measured["loss"], config.router.auxiliary * measured["auxiliary"], rtol=1e-3)


def test_dense_block_costs_what_experts_do():
    config = tiny_config("small,router=dense", **ONE_BLOCK)
    block = jax.eval_shape(RECIPE.build(config, DATA).init, KEY)["Transformer"]["encoderblock_0"]
    assert block["MoeLayer_0"]["MlpBlock_0"]["Dense_0"]["kernel"].shape == (32, round(8 * 44 / 160 * 64))


def test_noise_is_added_in_training_only():
    """Follows the schedule of lam in training and in evaluation."""
    lam = {"schedule": "geometric", "start": 1.0, "end": 1e-3}
    config = tiny_config(router__lam=lam, router__noise=4.0, **ONE_BLOCK)
    experiment = RECIPE.build(config, DATA)
    params = random_params(config, DATA)
    batch = first(60)
    images = jnp.asarray(batch["image"], jnp.float32) / 127.5 - 1.0

    @jax.jit
    def support(progress, seed):
        _, measured = experiment.loss(params, batch | {"image": images}, jax.random.key(seed), progress)
        return measured["loss"], measured["router"]["block_0"]["support"]

    (one, wide), (other, _), (_, narrow) = (support(*at) for at in ((0.0, 0), (0.0, 1), (1.0, 0)))
    assert one != other
    assert wide > narrow >= 44

    @jax.jit
    def evaluated(progress):
        return experiment.evaluate(params, batch, progress)["test_router"]["block_0"]["support"]

    early, late = (np.asarray(evaluated(jnp.float32(progress))) for progress in (0, 1))
    assert early.mean() > late.mean()
    np.testing.assert_array_equal(early.reshape(6, 10), early.reshape(6, 10)[:, :1].repeat(10, 1))


def test_padding_images_do_not_count():
    """Fills up the last group with the last image."""
    config, data = tiny_config("small,router=hard", eval_batch_size=20, **ONE_BLOCK), DATA
    few = {name: array[:13] for name, array in data.evaluation.items()}
    filled = {name: array[np.minimum(np.arange(20), 12)] for name, array in data.evaluation.items()}
    experiment = RECIPE.build(config, data)
    params = random_params(config, data)
    short = dataclasses.replace(data, evaluation=few)
    made = evaluation.make(Program(RECIPE, config, short))
    made.compile(params)
    of_each = jax.jit(experiment.evaluate)(params, filled, jnp.float32(0.5))
    found = made(params, 0.5)
    for name in ("test_loss", "test_precision_at_1"):
        np.testing.assert_allclose(found[name], np.mean(of_each[name][:13]), rtol=1e-5)
    # The joint frequencies of experts and classes, of the real images.
    joint = np.sum(of_each["test_router"]["block_0"]["specialisation"][:13], axis=0)
    share = joint / joint.sum()
    alone = share.sum(axis=1, keepdims=True) * share.sum(axis=0, keepdims=True)
    nats = np.sum(share * np.log(np.where(share > 0, share / np.where(alone > 0, alone, 1), 1)))
    assert nats > 0.01
    np.testing.assert_allclose(found["test_router"]["block_0"]["specialisation"], nats, rtol=1e-3)


@pytest.mark.parametrize(
    ("fields", "slots_of_a_group", "num_logits"),
    [
        ({"moe__dispatcher": "dense"}, 8 * 160, 8),  # every expert on every token
        ({"router__name": "soft"}, 8 * 44, 8 * 44),  # a logit for every slot
    ],
)
def test_flops_count_slots_and_router(fields, slots_of_a_group, num_logits):
    config = tiny_config(**fields)
    network = vmoe.make_model(config, 10, vmoe.make_router(config, 0.1))
    dense = network.clone(make_mlp=None)
    size, width, mlp = 8, 32, 64
    slots, tokens, router = slots_of_a_group / 10, 16, 16 * width * num_logits
    extra = 2 * router + (slots - tokens) * 2 * 2 * width * mlp
    found = RECIPE.build(config, DATA).flops_per_example / 3
    assert found == vmoe.vit.forward_flops(dense, size, 1) + extra


def test_probe_sees_whole_images_from_host():
    """Which are of another size in the data than in the network."""
    config = tiny_config("small,router=hard", input__size=16, **ONE_BLOCK)
    from_host = {"input__augment_on": "host", "input__recipe": "none"}
    on_host = tiny_config("small,router=hard", input__size=16, **from_host, **ONE_BLOCK)
    params = random_params(config, DATA)
    probes = [RECIPE.build(one, data_lib.load(one)).probe for one in (on_host, config)]
    found, expected = jax.jit(lambda params: [probe.find(params, HALF) for probe in probes])(params)
    assert found.keys() == expected.keys()
    for block, assigned in expected.items():
        np.testing.assert_array_equal(found[block], assigned)
