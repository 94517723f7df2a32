"""The arithmetic of operations, bytes sent and least times, by cases counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from scripts.aot import hardware, operations, roofline
from scripts.aot.collectives import Collective


def counted(f, *shapes, platform="tpu", assumed=9.0, dtype=np.float32):
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return operations.count(jax.jit(f).trace(*arguments).jaxpr.jaxpr, platform, assumed)


PRODUCT = 2 * 8 * 16 * 32


def test_a_product():
    found = counted(lambda x, y: jnp.sin(x @ y), (8, 16), (16, 32))
    assert (found.products, found.weighted) == (PRODUCT, PRODUCT)


@pytest.mark.parametrize(
    ("dtype", "precision", "platform", "passes"),
    [
        (np.float32, "highest", "tpu", 6),
        (np.float32, "high", "tpu", 3),
        (np.float32, None, "cuda", 2),
        (np.float32, "highest", "cuda", 989 / 67),
        (jnp.bfloat16, "highest", "tpu", 1),
    ],
)
def test_float32_takes_several_products(dtype, precision, platform, passes):
    found = counted(
        lambda x, y: jnp.matmul(x, y, precision=precision), (8, 16), (16, 32), platform=platform, dtype=dtype
    )
    assert found.products == PRODUCT
    assert found.weighted == pytest.approx(passes * PRODUCT)


def test_a_gradient_takes_two_more_and_what_is_computed_again_one_more():
    def loss(x, y):
        return jnp.sin(jnp.sin(x @ y)).sum()

    assert counted(jax.grad(loss, (0, 1)), (8, 16), (16, 32)).products == 3 * PRODUCT
    assert counted(jax.grad(jax.checkpoint(loss), (0, 1)), (8, 16), (16, 32)).products == 4 * PRODUCT


def test_loops_count_as_often_as_they_go_round():
    def scanned(x, ys):
        return jax.lax.scan(lambda x, y: (x @ y, None), x, ys)[0]

    assert counted(scanned, (8, 16), (5, 16, 16)).products == 5 * 2 * 8 * 16 * 16

    def until_done(x, y):
        return jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: x @ y, x)

    assert counted(until_done, (8, 16), (16, 16), assumed=3.0).products == 3 * 2 * 8 * 16 * 16


def test_of_branches_the_longest():
    def f(x, y):
        return jax.lax.cond(x.sum() > 0, lambda: x @ y, lambda: x @ y @ y)

    assert counted(f, (8, 16), (16, 16)).products == 2 * 2 * 8 * 16 * 16


def test_what_each_device_does_for_itself_counts_for_all():
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=2 * (jax.sharding.AxisType.Auto,))
    rows = PartitionSpec(("a", "b"))
    f = jax.shard_map(lambda x, y: x @ y, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows)
    assert counted(f, (8, 16), (16, 32)).products == PRODUCT


def test_a_convolution():
    def f(images, kernel):
        return jax.lax.conv_general_dilated(images, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert counted(f, (2, 8, 8, 3), (4, 4, 3, 5)).products == 2 * (2 * 2 * 2) * (4 * 4 * 3) * 5


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all-reduce", 150), ("all-gather", 75), ("reduce-scatter", 75), ("all-to-all", 75), ("collective-permute", 100)],
)
def test_bytes_sent_among_four(kind, sent):
    assert Collective(kind, 100.0, 4, "").sent == sent


def test_the_least_time_is_the_longest_of_three():
    device = hardware.parse("v5e").device
    found = roofline.of(device, operations=197e12, moved=2 * 819e9, sent=0.5 * 200e9)
    assert (found.compute, found.memory, found.interconnect) == (1.0, 2.0, 0.5)
    assert (found.least, found.bound) == (2.0, "memory")
    assert found.utilisation(98.5e12, device) == 0.25
    assert "not measured" in found.record()["label"]
