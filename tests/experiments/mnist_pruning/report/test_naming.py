"""What a method says that it reads is all that it reads: runs are told apart by it."""

import jax
import jax.numpy as jnp
import pytest
from experiments.mnist_pruning.report.naming import IDENTITY

from configs import mnist_pruning
from experiments.core.config import to_json
from experiments.core.report.identity import dotted
from experiments.mnist_pruning.methods import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_without_the_fields_that_it_does_not_read(name):
    config = mnist_pruning.get_config(name)
    read = IDENTITY.fields(dotted(to_json(config)))
    for field in dotted(to_json(config)):
        section, _, leaf = field.rpartition(".")
        if field not in read:
            del (config[section] if section else config)[leaf]
    method = METHODS[name].make(config, 10)

    def trained(w, key, progress):
        state = method.init(w, key)
        w, state = method.after_update(w, state, w, progress)
        return method.weights(w, state, progress, key), method.penalty(w, state, progress)

    weights, _ = jax.eval_shape(trained, jnp.ones(20), jax.random.key(0), jnp.float32(0.5))
    assert weights.shape == (20,)


def test_values_of_the_time_before_a_field_are_those_that_it_has_by_default():
    assert IDENTITY.earlier.items() <= dotted(to_json(mnist_pruning.get_config("hard"))).items()
