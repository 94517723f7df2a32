import jax.numpy as jnp
import numpy as np

from ops.marginals import conjugate_gradients


def test_null_space_rounding_does_not_grow(x64):
    matrix, null = np.array([[[1.0, -1.0], [-1.0, np.nextafter(1, 2)]]]), np.array([0.7, 0.7])
    right = jnp.asarray([[1.0, -1.0] + 4e-15 * null])
    found = conjugate_gradients(lambda y: jnp.einsum("bij,bj->bi", matrix, y), right, 24, 2e-15, min_curvature=1e-15)
    np.testing.assert_allclose(found, [[0.5, -0.5]], rtol=1e-10)
