"""The experiment on digits: its loss, updates and accuracies against NumPy, its weights, and mistakes in its config."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from configs.cifar100_vit import get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.cifar100_vit.losses import LOSSES, fine_tuning_loss
from experiments.cifar100_vit.suite import DEMO
from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.input.stream import Stream
from experiments.core.training import optimizer
from experiments.core.training.step import Program
from experiments.vision import networks
from tests.experiments.support import on_one_device
from tests.experiments.vision import numpy_vit


def tiny_config(argument="small", **fields):
    """Digits and a network of two blocks; `fields` by name, with `__` for the dots."""
    return on_one_device(get_config(argument), DEMO, fields)


def random_params(config, num_classes=10):
    """Parameters by name, each of them random and the head too, so that all matter."""
    rng = np.random.default_rng(0)
    size = config.input.size
    images = jax.ShapeDtypeStruct((1, size, size, 1), jnp.float32)
    shapes = jax.eval_shape(networks.make(config, num_classes).init, jax.random.key(0), images)["params"]
    scale = {"scale": 1.0, "kernel": 0.2, "bias": 0.1}
    return {
        name: (rng.normal(size=leaf.shape) * scale.get(name.rpartition("/")[2], 0.3)).astype(np.float32)
        for name, leaf in flatten_dict(shapes, sep="/").items()
    }


DATA = data_lib.load(tiny_config())
KEY = jax.random.key(0)
HALF = jnp.float32(0.5)
ONE_BLOCK = {"model__depth": 1}  # nearly all the time is compilation
MULTI_HOT = dataclasses.replace(
    DATA,
    **{
        split: getattr(DATA, split) | {"label": np.eye(10, dtype=np.uint8)[getattr(DATA, split)["label"]]}
        for split in ("train", "evaluation")
    },
)


def test_loss_and_accuracies_match_numpy():
    config = tiny_config("small,p=4/3,target=smooth", loss__lam=1.0, **ONE_BLOCK)
    params, images = random_params(config), DATA.evaluation["image"][:60]
    of_both = [data.evaluation["label"][:60] for data in (DATA, MULTI_HOT)]
    logits = numpy_vit.forward(params, images.astype(np.float32) / 127.5 - 1.0)
    assert np.ptp(logits) > 1  # far from the zeros of a fresh head

    @jax.jit
    def metrics_and_loss(params, *of_both):
        experiment = RECIPE.build(config, DATA)
        batch = {"image": experiment.augment(KEY, images)}
        return fine_tuning_loss(**config.loss)(jnp.float32(logits), of_both[0]), [
            (
                experiment.evaluate(params, {"image": images, "label": labels}, HALF),
                experiment.loss(params, batch | {"label": labels}, KEY, HALF)[0],
            )
            for labels in of_both
        ]

    expected, ((found, loss), (of_vectors, other)) = metrics_and_loss(unflatten_dict(params, sep="/"), *of_both)
    np.testing.assert_allclose(loss, np.mean(expected), rtol=2e-5)
    rank = np.argmax(np.argsort(-logits, axis=1) == of_both[0][:, None], axis=1)
    assert set(found) == {"test_accuracy", "mean_topk_error", "logit_norm", "calibration_error"}
    np.testing.assert_allclose(found["logit_norm"], np.linalg.norm(logits, axis=1), rtol=1e-5)
    assert set(found["test_accuracy"]) == {str(k) for k in range(1, 11)}
    for k in range(1, 11):
        np.testing.assert_array_equal(found["test_accuracy"][str(k)], 100.0 * (rank < k))
    means = np.mean([found["test_accuracy"][str(k)] for k in range(1, 11)], axis=0)
    np.testing.assert_allclose(found["mean_topk_error"], 100 - means, atol=1e-4)
    assert len(set(rank)) > 5
    jax.tree.map(np.testing.assert_array_equal, found, of_vectors)
    np.testing.assert_allclose(loss, other, rtol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_single_label_loss_refuses_multi_hot(name):
    streamed = dataclasses.replace(DATA, train={}, train_stream=Stream(8, None, {"label": np.zeros(10, np.uint8)}))
    config, message = tiny_config(loss__name=name), rf"^config\.loss\.name='{name}' .* must be one of xent, "
    for data in (MULTI_HOT, streamed):
        expected = pytest.raises(UsageError, match=message) if LOSSES[name].single_label else contextlib.nullcontext()
        with expected:
            RECIPE.build(config, data)


def test_pretrained_body_gets_a_zero_head(tmp_path):
    weights = random_params(tiny_config(), num_classes=5)  # another head, which is left
    np.savez(tmp_path / "weights.npz", **weights)
    config = tiny_config(pretrained=str(tmp_path / "weights.npz"), model__scan=True, seeds=(0, 1))
    program = Program(RECIPE, config, DATA)
    assert "head" not in program.experiment.pretrained
    begun = program.begin(jnp.asarray([0, 1], jnp.int32)).params
    params = flatten_dict(jax.device_get(begun), sep="/")
    for name, leaf in weights.items():
        body, _, block = name.partition("/encoderblock_")
        if name.startswith("head/"):
            found, leaf = params[name], 0
        elif block:
            number, _, rest = block.partition("/")
            found = params[f"{body}/encoderblock/{rest}"][:, int(number)]
        else:
            found = params[name]
        np.testing.assert_array_equal(found, np.broadcast_to(leaf, found.shape))  # of both seeds
    assert params["head/kernel"].shape == (2, 32, 10)


@pytest.mark.parametrize("argument", ["features", "last_block", "whole"])
def test_second_set_of_weights_is_refused(argument):
    config = get_config(argument)
    RECIPE.validate(config)
    config.pretrained = "weights.npz"
    with pytest.raises(UsageError, match=r"^config\.pretrained='weights\.npz' .* must be empty"):
        RECIPE.validate(config)


def test_remat_is_applied_only_if_set():
    def program(remat):
        experiment = RECIPE.build(tiny_config("small,loss=xent", model__remat=remat, model__scan=True), DATA)
        params = jax.eval_shape(experiment.init, KEY)
        batch = {"image": jax.ShapeDtypeStruct((8, 8, 8, 1), jnp.float32), "label": np.zeros(8, np.int32)}
        return str(jax.make_jaxpr(jax.grad(experiment.loss, has_aux=True))(params, batch, KEY, HALF))

    assert ["remat" in program(remat) for remat in (True, False)] == [True, False]


def test_flops_are_three_forward_passes():
    config = tiny_config()
    experiment = RECIPE.build(config, DATA)
    # 16 patches of 2 x 2 pixels, width 32, two blocks, MLPs of 64, ten classes.
    forward = 16 * 4 * 32 + 2 * (4 * 16 * 32**2 + 2 * 16**2 * 32 + 2 * 16 * 32 * 64) + 32 * 10
    assert experiment.flops_per_example == 3 * 2 * forward
    assert optimizer.learning_rate(config, 10) == pytest.approx(5e-3)
