"""The config of the fine-tuning experiment: the paper's values, step by step, and what its options do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from configs.cifar100_vit import WEIGHTS, get_config
from experiments.cifar100_vit.experiment import RECIPE
from experiments.core.errors import UsageError
from experiments.core.training import optimizer, train


def validate(config):
    """As the trainer does, before it reads data."""
    train.validate(config)
    RECIPE.validate(config)


def paper_rate(step, steps, peak):
    """Linear from 0 over the first tenth, then half a period of the cosine down to 0."""
    warmup = steps / 10
    return peak * (step / warmup if step < warmup else np.cos(np.pi / 2 * (step - warmup) / (steps - warmup)) ** 2)


def changed(argument):
    """The fields in which the config differs from the one without an argument, by dotted name."""
    own, base = (flatten_dict(config.to_dict(), sep=".") for config in (get_config(argument), get_config()))
    return {name: value for name, value in own.items() if name not in base or base[name] != value}


def test_the_full_size_is_the_papers():
    config = get_config()
    assert (config.dataset, config.label, config.split) == ("cifar100", "label", "test")
    assert (config.batch_size, config.steps, config.accumulate) == (512, 100, 1)
    assert config.optimizer.to_dict() == {
        "name": "sgd",
        "momentum": 0.9,
        "learning_rate": 5e-3,
        "schedule": "cosine",
        "warmup_steps": 10,
        "clip_norm": 1.0,
    }
    assert (config.input.recipe, config.input.size) == ("inception", 384)
    assert (config.loss.name, config.loss.k, config.loss.p, config.loss.target) == ("topk", 3, 2.0, "one_hot")
    assert config.pretrained == "gs://vit_models/imagenet21k/ViT-B_16.npz"


def test_every_step_is_the_papers_sgd():
    """The updates of `optimizer.make`, step for step, against SGD in NumPy with the paper's values written out."""
    steps, peak = 20, 3e-3
    config = get_config(f"loss=xent,steps={steps}")
    # Norms from 0.06 to 5: some gradients are clipped to 1 and some are not.
    rng = np.random.default_rng(steps)
    gradients = rng.normal(size=(steps, 6)) * np.exp(rng.uniform(-3.5, 1, size=(steps, 1)))
    norms = np.linalg.norm(gradients, axis=1)
    assert 0.1 < (norms > 1).mean() < 0.9
    momentum, expected = np.zeros(6), []
    for step in range(steps):
        momentum = 0.9 * momentum + gradients[step] / max(1.0, norms[step])
        rate = paper_rate(step, steps, peak)
        assert optimizer.learning_rate(config, step) == pytest.approx(rate, rel=1e-5, abs=1e-9)  # what rows say
        expected.append(-rate * momentum)

    # Large parameters, which a weight decay would not leave alone; the gradient of two leaves is clipped as one.
    params = {"w": jnp.full(4, 100.0), "b": jnp.full(2, -100.0)}
    transformation = optimizer.make(config)

    def update(state, gradient):
        made, state = transformation.update({"w": gradient[:4], "b": gradient[4:]}, state, params)
        return state, jnp.concatenate([made["w"], made["b"]])

    with jax.numpy_dtype_promotion("standard"):
        _, found = jax.lax.scan(update, transformation.init(params), jnp.asarray(gradients, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * peak)


@pytest.mark.parametrize(
    ("argument", "fields"),
    [
        ("", {}),
        ("loss=topk,p=2,target=one_hot,steps=100,recipe=vit_jax,weights=original,small=no,pretrain=no", {}),
        ("loss=xent", {"loss.name": "xent", "optimizer.learning_rate": 3e-3}),
        ("p=4/3", {"loss.p": 4 / 3}),
        ("target=smooth", {"loss.target": "smooth"}),
        ("steps=500", {"steps": 500, "eval_every": 500, "optimizer.warmup_steps": 50}),
        ("recipe=big_vision", {"input.recipe": "big_vision", "optimizer.learning_rate": 1e-2}),
        ("weights=augreg", {"pretrained": WEIGHTS["augreg"]}),
        ("small=yes,loss=xent", changed("small") | changed("loss=xent")),
        ("pretrain,small", changed("pretrain")),
    ],
)
def test_an_option_changes_its_fields_alone(argument, fields):
    assert changed(argument) == fields


@pytest.mark.parametrize("argument", ["small", "small,loss=xent,steps=200", "pretrain"])
def test_small_and_pretrain_configs_validate(monkeypatch, argument):
    monkeypatch.setattr(jax, "device_count", lambda: 4)  # they divide its batches
    validate(get_config(argument))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("loss=", r"^'loss=' is not one of OPTION=VALUE, .* loss, p, target, steps"),
        ("loss=hinge", r"^loss=hinge is not allowed: it must be one of xent, .*, topk_mixture, .*, sorted_xent$"),
        ("small,recipe=big_vision", r"^recipe=big_vision .* small"),
        ("pretrain,steps=50", r"^steps=50 .* pretrain"),
    ],
)
def test_a_value_that_cannot_be_is_one_line(argument, message):
    with pytest.raises(UsageError, match=message):
        get_config(argument)


def test_full_size_requires_an_accelerator():
    assert jax.default_backend() == "cpu"
    config = get_config("loss=xent")
    validate(config)
    with pytest.raises(UsageError) as refused:
        RECIPE.prepare(config)
    for part in ("B/16 at 384 pixels", "batches of 512", WEIGHTS["original"], "make cifar100 PRESET=small"):
        assert part in str(refused.value)
    config.update(accelerator=False, pretrained="")  # an address would be fetched now
    RECIPE.prepare(config)
