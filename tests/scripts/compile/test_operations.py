"""Operations of matrix products, by cases counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from scripts.compile import operations


def counted(f, *shapes):
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return operations.count(jax.jit(f).trace(*arguments).jaxpr.jaxpr)


PRODUCT = 2 * 8 * 16 * 32


def test_a_product():
    assert counted(lambda x, y: jnp.sin(x @ y), (8, 16), (16, 32)) == PRODUCT


def test_gradient_and_remat_add_products():
    def loss(x, y):
        return jnp.sin(jnp.sin(x @ y)).sum()

    assert counted(jax.grad(loss, (0, 1)), (8, 16), (16, 32)) == 3 * PRODUCT
    assert counted(jax.grad(jax.checkpoint(loss), (0, 1)), (8, 16), (16, 32)) == 4 * PRODUCT


def test_loops_count_their_known_rounds():
    def scanned(x, ys):
        return jax.lax.scan(lambda x, y: (x @ y, None), x, ys)[0]

    def until_done(x, y):
        return jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: x @ y, x)

    assert counted(scanned, (8, 16), (5, 16, 16)) == 5 * 2 * 8 * 16 * 16
    assert counted(until_done, (8, 16), (16, 16)) == 2 * 8 * 16 * 16


def test_the_longest_branch():
    def f(x, y):
        return jax.lax.cond(x.sum() > 0, lambda: x @ y, lambda: x @ y @ y)

    assert counted(f, (8, 16), (16, 16)) == 2 * 2 * 8 * 16 * 16


def test_shard_map_counts_all_devices():
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=2 * (jax.sharding.AxisType.Auto,))
    rows = PartitionSpec(("a", "b"))
    f = jax.shard_map(lambda x, y: x @ y, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows)
    assert counted(f, (8, 16), (16, 32)) == PRODUCT


def test_a_convolution():
    def f(images, kernel):
        return jax.lax.conv_general_dilated(images, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert counted(f, (2, 8, 8, 3), (4, 4, 3, 5)) == 2 * (2 * 2 * 2) * (4 * 4 * 3) * 5
