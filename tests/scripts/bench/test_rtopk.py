import jax.numpy as jnp
import numpy as np

import ops
from scripts.bench import rtopk


def test_it_selects_the_largest_and_of_ties_the_first():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((3, 50)), rng.integers(-2, 3, (4, 50)), np.ones((1, 50))])
    x = jnp.asarray(x, jnp.float32)
    for k in (1, 7, 50):
        np.testing.assert_array_equal(rtopk.mask(x, k), ops.hard_topk_mask(x, k))
