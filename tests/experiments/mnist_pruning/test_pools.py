"""Which weights share a budget, and what an optimizer forgets of them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.pools import BUDGETS, Pools, forget
from tests.experiments.support import small_config

NETWORK = {
    layer: {"kernel": jax.random.normal(jax.random.key(int(layer)), shape), "bias": jnp.ones(shape[1])}
    for layer, shape in {"1": (5, 4), "2": (4, 3), "3": (3, 2)}.items()
}


@pytest.mark.parametrize("budget", BUDGETS)
def test_scatter_inverts_gather(budget):
    pools = Pools(budget, ("1", "3"))
    vectors = pools.gather(NETWORK)
    doubled = pools.scatter({pool: 2 * w for pool, w in vectors.items()}, NETWORK)
    for layer, factor in {"1": 2, "2": 1, "3": 2}.items():
        np.testing.assert_array_equal(doubled[layer]["kernel"], factor * NETWORK[layer]["kernel"])
        np.testing.assert_array_equal(doubled[layer]["bias"], NETWORK[layer]["bias"])
    if budget == "row":  # what goes into one unit
        np.testing.assert_array_equal(vectors["1"][2], NETWORK["1"]["kernel"][:, 2])


@pytest.mark.parametrize(("optimizer", "moments"), [(optax.sgd(0.1, momentum=0.9), 1), (optax.adam(0.1), 2)])
def test_forget_clears_only_masked_moments(optimizer, moments):
    labels = {"network": "network", "method": "method"}
    whole = optax.multi_transform({"network": optimizer, "method": optax.set_to_zero()}, labels)
    params = {"network": {"block": NETWORK}, "method": {"1": {"mask": jnp.ones(20)}}}
    ones = jax.tree.map(np.ones_like, params)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        state = jax.jit(lambda: whole.update(ones, whole.init(params), params)[1])()
    masks = {"block.1": jnp.zeros((5, 4)).at[2, 1].set(1.0)}
    before = dict(jax.tree_util.tree_leaves_with_path(state))
    after = dict(jax.tree_util.tree_leaves_with_path(jax.jit(forget)(state, masks)))
    masked = [path for path in before if jax.tree_util.keystr(path).endswith("['network']['block']['1']['kernel']")]
    assert len(masked) == moments
    for path, leaf in after.items():
        np.testing.assert_array_equal(leaf, before[path] * masks["block.1"] if path in masked else before[path])


def test_empty_budget_is_refused():
    config = small_config("hard", hidden=(16,), prune_layers=(1, 2), budget="row", density=0.05)
    with pytest.raises(UsageError, match=r"^config\.density=0\.05 .* one of the 16 weights of a unit of layer 2$"):
        RECIPE.build(config, data_lib.load(config))
