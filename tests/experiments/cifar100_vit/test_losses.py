"""Each loss is, as a program, that of the library by its own arguments; values are tested where those are defined."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ops
from experiments.cifar100_vit.losses import LOSSES, fine_tuning_loss
from experiments.vision.losses import smooth_svm, sorted_cross_entropy, truncated_entropy

LOGITS = np.random.default_rng(0).normal(size=(6, 7)).astype(np.float32)
LABELS = np.array([0, 6, 3, 1, 5, 2])
ONE_HOT = np.eye(7, dtype=np.float32)[LABELS]
OPTIONS = {"k": 3, "p": 4 / 3, "lam": 0.5, "target": "smooth"}


def program(loss, labels=LABELS):
    """What a loss of logits and labels is traced to, and its constants."""
    made = jax.make_jaxpr(loss)(LOGITS, labels)
    text = re.sub(r"0x[0-9a-f]+", "", str(made))  # addresses of functions
    return text, [np.asarray(constant).tolist() for constant in made.consts]


def test_losses_match_library_functions():
    integer, by_class = optax.softmax_cross_entropy_with_integer_labels, optax.softmax_cross_entropy
    wanted = {
        "xent": integer,
        "topk": lambda x, labels: ops.topk_fenchel_young_loss(x, labels, 3, p=4 / 3, lam=0.5, target="smooth"),
        "topk_mixture": lambda x, labels: ops.topk_fenchel_young_mixture(
            x, labels, weights=np.full(3, 1 / 3), p=4 / 3, lam=0.5, target="smooth"
        ),
        "topk_surrogate": lambda x, labels: ops.topk_surrogate_loss(x, labels, 3, p=4 / 3, lam=0.5),
        "truncated_entropy": lambda x, labels: truncated_entropy(x, labels, 3),
        "smooth_svm": lambda x, labels: smooth_svm(x, labels, 3, 0.5),
        "sorted_xent": lambda x, labels: sorted_cross_entropy(x, labels, 3, 0.5),
    }
    assert wanted.keys() | {"xent_smoothed", "xent_temperature"} == LOSSES.keys()
    for name, loss in wanted.items():
        ours = fine_tuning_loss(name, **OPTIONS)
        assert program(ours) == program(loss), name
        if LOSSES[name].single_label:
            with pytest.raises(ValueError, match="this loss is one of integer labels"):
                ours(LOGITS, ONE_HOT)
        else:
            assert program(ours, ONE_HOT) == program(by_class if name == "xent" else loss, ONE_HOT), name

    @jax.jit
    def ours_and_wanted(logits):
        smoothed = optax.softmax_cross_entropy(logits, 0.9 * ONE_HOT + np.float32(0.1 / 7))
        warm = 0.5 * optax.softmax_cross_entropy(logits / 0.5, ONE_HOT)
        named = {"xent_temperature": warm, "xent_smoothed": smoothed}
        return [
            (fine_tuning_loss(name, lam=0.5)(logits, labels), expected)
            for name, expected in named.items()
            for labels in (LABELS, ONE_HOT)
        ]

    for found, expected in ours_and_wanted(LOGITS):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert jax.eval_shape(fine_tuning_loss("topk"), LOGITS.astype(jnp.bfloat16), LABELS).dtype == jnp.float32
    with pytest.raises(ValueError, match=r"lam, the temperature of smooth_svm, must be positive, got 0.0"):
        fine_tuning_loss("smooth_svm", lam=0.0)


def test_loss_ignores_undeclared_fields():
    """Traces to the same program whatever their values are."""
    others = {"k": 2, "p": 1.5, "lam": 0.7, "target": "one_hot"}
    for name, kind in LOSSES.items():
        unread = {option: value for option, value in others.items() if option not in kind.reads}
        first, second = (fine_tuning_loss(name, **given) for given in (OPTIONS, OPTIONS | unread))
        assert program(first) == program(second), name
