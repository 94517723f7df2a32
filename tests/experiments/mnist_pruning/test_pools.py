"""Which weights share a budget, and what an optimizer forgets of them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.core.errors import UsageError
from experiments.core.record import metrics
from experiments.core.training import train
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.pools import BUDGETS, Pools, forget
from tests.experiments.support import small_config

NETWORK = {
    layer: {"kernel": jax.random.normal(jax.random.key(int(layer)), shape), "bias": jnp.ones(shape[1])}
    for layer, shape in {"1": (5, 4), "2": (4, 3), "3": (3, 2)}.items()
}


@pytest.mark.parametrize("budget", BUDGETS)
def test_pools_are_put_back_where_they_were_taken_from(budget):
    pools = Pools(budget, ("1", "3"))
    vectors = pools.gather(NETWORK)
    assert {pool: w.shape[-1] for pool, w in vectors.items()} == pools.sizes(NETWORK)
    doubled = pools.scatter({pool: 2 * w for pool, w in vectors.items()}, NETWORK)
    for layer, factor in {"1": 2, "2": 1, "3": 2}.items():
        np.testing.assert_array_equal(doubled[layer]["kernel"], factor * NETWORK[layer]["kernel"])
        np.testing.assert_array_equal(doubled[layer]["bias"], NETWORK[layer]["bias"])


def test_a_row_is_what_goes_into_one_unit():
    np.testing.assert_array_equal(Pools("row", ("2",)).gather(NETWORK)["2"][1], NETWORK["2"]["kernel"][:, 1])


@pytest.mark.parametrize(("optimizer", "moments"), [(optax.sgd(0.1, momentum=0.9), 1), (optax.adam(0.1), 2)])
def test_an_optimizer_forgets_what_is_masked_and_nothing_else(optimizer, moments):
    labels = {"network": "network", "method": "method"}
    whole = optax.multi_transform({"network": optimizer, "method": optax.set_to_zero()}, labels)
    params = {"network": NETWORK, "method": {"1": {"mask": jnp.ones(20)}}}
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        _, state = whole.update(jax.tree.map(jnp.ones_like, params), whole.init(params), params)
    masks = {"1": jnp.zeros((5, 4)).at[2, 1].set(1.0)}
    before = dict(jax.tree_util.tree_leaves_with_path(state))
    after = dict(jax.tree_util.tree_leaves_with_path(forget(state, masks)))
    masked = [path for path in before if jax.tree_util.keystr(path).endswith("['network']['1']['kernel']")]
    assert len(masked) == moments
    for path, leaf in after.items():
        np.testing.assert_array_equal(leaf, before[path] * masks["1"] if path in masked else before[path])


def test_an_optimizer_forgets_layers_within_layers():
    params = {"network": {"block": {"query": {"kernel": jnp.ones((2, 3))}, "key": {"kernel": jnp.ones((2, 3))}}}}
    optimizer = optax.sgd(0.1, momentum=0.9)
    _, state = optimizer.update(params, optimizer.init(params))
    mask = jnp.zeros((2, 3)).at[1, 2].set(1.0)
    (trace, *_) = forget(state, {"block.query": mask})
    np.testing.assert_array_equal(trace.trace["network"]["block"]["query"]["kernel"], mask)
    np.testing.assert_array_equal(trace.trace["network"]["block"]["key"]["kernel"], 1.0)


def rows_of(tmp_path, variant, **fields):
    train.run(RECIPE, small_config(variant, hidden=(16,), prune_layers=(1, 2), **fields), tmp_path / "w")
    return metrics.read(tmp_path / "w" / "metrics.jsonl")


def test_layers_compete_for_the_budget_of_the_network(tmp_path):
    last = rows_of(tmp_path, "hard", budget="network")[-1]
    size, kept = 64 * 16 + 16 * 10, int(0.1 * (64 * 16 + 16 * 10))
    assert last["train_density"] == pytest.approx([kept / size] * 2)
    assert last["hardened_density"] == last["train_density"]
    second = last["train_density_per_layer"]["2"]
    assert min(second) > 0.15  # its weights start larger


def test_every_unit_has_a_budget_of_its_own(tmp_path):
    train.run(RECIPE, small_config("hard", budget="row", epochs=1), tmp_path / "w")
    last = metrics.read(tmp_path / "w" / "metrics.jsonl")[-1]
    assert last["train_density"] == last["hardened_density"] == pytest.approx([6 / 64] * 2)


def test_a_budget_without_a_weight_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^config\.density=0\.05 .* one of the 16 weights of a unit of layer 2$"):
        rows_of(tmp_path, "hard", budget="row", density=0.05)


def test_after_its_schedule_a_relaxed_top_k_is_hard_and_keeps_exactly_k(tmp_path):
    *_, before, last = rows_of(tmp_path, "annealed", budget="network", hard_after=0.9, lam__end=0.1, epochs=4)
    assert min(before["train_density"]) > 0.11
    assert last["train_density"] == pytest.approx([int(0.1 * 1184) / 1184] * 2)
    assert last["hardened_error"] == last["test_error"]
