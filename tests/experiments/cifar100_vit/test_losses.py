"""The losses against optax, and against their definition through the dual; their gradients are those of `ops`."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize

import ops
from experiments.cifar100_vit.losses import LOSSES, fine_tuning_loss
from experiments.vision.losses import smooth_svm, sorted_cross_entropy, truncated_entropy

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 7)) * np.array([[0.1], [0.3], [1.0], [1.0], [3.0], [10.0]])
LABELS = np.array([0, 6, 3, 1, 5, 2])
ONE_HOT = np.eye(7)[LABELS]
LAM = 0.5
FORMS = ("one_hot", 2.0), ("smooth", 4 / 3)


def value(x, k, p):
    """`max <x, y> - LAM / p |y|^p` over `0 <= y <= 1, sum(y) = k`, as the least value of its dual in the multiplier."""

    def dual(multiplier):
        y = np.clip((np.maximum(x - multiplier, 0) / LAM) ** (1 / (p - 1)), 0, 1)
        return (x - multiplier) @ y - LAM / p * (y**p).sum() + k * multiplier

    bounds = (x.min() - LAM, x.max())
    return optimize.minimize_scalar(dual, bounds=bounds, method="bounded", options={"xatol": 1e-9}).fun


def expected(k, p, target):
    """The definitions in the module's docstring, in NumPy."""
    t = ONE_HOT if target == "one_hot" else ONE_HOT + (k - 1) / 6 * (1 - ONE_HOT)
    return np.array([value(x, k, p) for x in LOGITS]) + LAM / p * (t**p).sum(axis=1) - (LOGITS * t).sum(axis=1)


@pytest.mark.usefixtures("x64")
def test_losses_are_what_they_are_said_to_be():
    cases = [(fine_tuning_loss("topk", 3, p, LAM, target), expected(3, p, target)) for target, p in FORMS]
    for target, p in FORMS:
        mean = sum(expected(k, p, target) for k in (1, 2, 3)) / 3
        cases.append((fine_tuning_loss("topk_mixture", 3, p, LAM, target), mean))
    cases.append((fine_tuning_loss("xent"), np.log(np.exp(LOGITS).sum(axis=1)) - (LOGITS * ONE_HOT).sum(axis=1)))

    found = jax.jit(lambda x: [loss(x, LABELS) for loss, _ in cases])(LOGITS)
    for (_, wanted), values in zip(cases, found, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["xent", "topk"])
def test_labels_may_be_one_value_per_class(name):
    loss = fine_tuning_loss(name)
    both = jax.jit(lambda logits, *labels: [loss(logits, of_one) for of_one in labels])
    wanted, found = both(LOGITS.astype(np.float32), LABELS, ONE_HOT.astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_the_losses_of_others_and_the_surrogate_are_those_of_their_modules():
    logits, labels = jnp.asarray(LOGITS, jnp.float32), jnp.asarray(LABELS)
    wanted = {
        "topk_surrogate": lambda: ops.topk_surrogate_loss(logits, labels, 3, lam=LAM, p=4 / 3),
        "truncated_entropy": lambda: truncated_entropy(logits, labels, 3),
        "smooth_svm": lambda: smooth_svm(logits, labels, 3, LAM),
        "sorted_xent": lambda: sorted_cross_entropy(logits, labels, 3, LAM),
        "xent_smoothed": lambda: optax.softmax_cross_entropy(logits, 0.9 * jnp.asarray(ONE_HOT, jnp.float32) + 0.1 / 7),
    }
    assert wanted.keys() | {"xent", "topk", "topk_mixture"} == LOSSES.keys()
    losses = {name: fine_tuning_loss(name, 3, 4 / 3, LAM) for name in wanted}
    both = jax.jit(lambda: {name: (loss(logits, labels), wanted[name]()) for name, loss in losses.items()})
    for name, (found, expected) in both().items():
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)
        assert np.ptp(found) > 0.1
    for name in wanted.keys() - {"xent_smoothed"}:
        with pytest.raises(ValueError, match="this loss is one of integer labels"):
            fine_tuning_loss(name, 3, 4 / 3, LAM)(logits, jnp.asarray(ONE_HOT))


def test_half_precision_is_computed_in_float32():
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    loss = jax.jit(fine_tuning_loss("topk", 3, 2.0, 0.1, "smooth"))
    found = loss(logits, jnp.asarray(LABELS))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, loss(logits.astype(jnp.float32), jnp.asarray(LABELS)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "first"}, r"name must be one of 'xent', .*, got 'first'"),
        ({"name": "topk", "k": 8}, r"k must be in \[0, 7\]"),
        ({"name": "smooth_svm", "lam": 0.0}, r"lam, the temperature of smooth_svm, must be positive, got 0.0"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    """Others are in `test_hostile_commands.py`."""
    with pytest.raises(ValueError, match=message):
        fine_tuning_loss(**arguments)(jnp.asarray(LOGITS, jnp.float32), jnp.asarray(LABELS))


def test_a_loss_reads_nothing_but_the_fields_that_it_says():
    """Its program is the same whatever the others are."""
    options = {"k": 3, "p": 2.0, "lam": 0.5, "target": "one_hot"}
    others = {"k": 2, "p": 1.5, "lam": 0.7, "target": "smooth"}

    def program(name, options):
        made = jax.make_jaxpr(fine_tuning_loss(name, **options))(np.float32(LOGITS), LABELS)
        return re.sub(r"0x[0-9a-f]+", "", str(made))  # addresses of functions

    for name, kind in LOSSES.items():
        unread = {option: value for option, value in others.items() if option not in kind.reads}
        assert program(name, options) == program(name, options | unread), name
