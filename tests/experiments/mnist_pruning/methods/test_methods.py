"""What all methods have in common: their fields."""

import jax
import jax.numpy as jnp
import pytest

from configs import mnist_pruning
from experiments.core.errors import UsageError
from experiments.core.kinds import dotted
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.methods import KINDS, METHODS
from tests.experiments.support import small_config


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"density_schedule.begin": 1.0}, ""),
        ({"topkast.penalty": -1.0, "method": "topkast"}, ""),
        ({"prune_layers": (1, 4)}, ""),
        ({"density_schedule.name": "constant", "method": "gradual"}, "cubic for gradual"),
        ({"density": 1.0, "method": "ot_straight_through"}, r"in \(0, 1\) for ot_straight_through"),
    ],
)
def test_a_field_out_of_range_is_named(fields, allowed):
    """Others are in `test_hostile_commands.py`."""
    config = small_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(UsageError, match=rf"^config\.{next(iter(fields))}=.* must be {allowed}"):
        RECIPE.validate(config)


@pytest.mark.parametrize("name", METHODS)
def test_method_needs_only_fields_it_reads(name):
    config = mnist_pruning.get_config(name)
    fields = dotted(config)
    for field in fields:
        section, _, leaf = field.rpartition(".")
        if not KINDS.is_read(field, fields):
            del (config[section] if section else config)[leaf]
    method = METHODS[name].make(config, 10)

    def trained(w, key, progress):
        state = method.init(w, key)
        w, state = method.after_update(w, state, w, progress)
        return method.weights(w, state, progress, key), method.penalty(w, state, progress)

    weights, _ = jax.eval_shape(trained, jnp.ones(20), jax.random.key(0), jnp.float32(0.5))
    assert weights.shape == (20,)


@pytest.mark.parametrize("name", ["hard", "gradual", "movement", "relaxed"])
def test_lam_and_schedule_may_be_traced(name):
    """Allows runs that differ in these numbers to share a program."""

    def trained(end, start):
        config = small_config(name, density_schedule__name="cubic")
        with config.ignore_type():
            config.update_from_flattened_dict({"density_schedule.end": end, "lam.start": start})
        method = METHODS[name].make(config, 10)
        w, key, progress = jnp.ones(20), jax.random.key(0), jnp.float32(0.5)
        w, state = method.after_update(w, method.init(w, key), w, progress)
        return method.weights(w, state, progress, key)

    assert jax.eval_shape(trained, jnp.float32(0.5), jnp.float32(1)).shape == (20,)
