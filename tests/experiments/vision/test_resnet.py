"""The residual network for small images, beside one in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.vision.resnet import STATISTICS, ResNet

RNG = np.random.default_rng(0)
WIDTH, EPSILON = 2, 1e-5


def convolution(x, kernel, stride):
    """Padded by a pixel, with a kernel [9 C, C']."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), (3, 3), (1, 2))
    return np.einsum("bhwcij,ijcd->bhwd", windows[:, ::stride, ::stride], kernel.reshape(3, 3, x.shape[-1], -1))


def forward(params, x):
    """The logits and the variances of all norms, for one block in each of three stages."""
    variances = {}

    def convolved(x, name, stride=1):
        y, norm = convolution(x, params[name]["kernel"], stride), params[f"{name}_norm"]
        variances[name] = y.var(axis=(0, 1, 2))
        y = (y - y.mean(axis=(0, 1, 2))) / np.sqrt(variances[name] + EPSILON)
        return y * norm["scale"] + norm["bias"]

    x = np.maximum(convolved(x, "stem"), 0)
    for stage, stride in enumerate((1, 2, 2)):
        y = np.maximum(convolved(x, f"stage{stage}_block0_conv1", stride), 0)
        y = convolved(y, f"stage{stage}_block0_conv2")
        y[..., : x.shape[-1]] += x[:, ::stride, ::stride]
        x = np.maximum(y, 0)
    return x.mean(axis=(1, 2)) @ params["head"]["kernel"] + params["head"]["bias"], variances


def test_logits_and_statistics_match_numpy():
    model, images = ResNet(5, depth=8, width=WIDTH), RNG.normal(size=(4, 9, 7, 3)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.asarray(images))["params"]
    params = jax.tree.map(lambda leaf: RNG.normal(size=leaf.shape).astype(np.float32), shapes)
    logits, found = jax.jit(lambda *arrays: model.apply({"params": arrays[0]}, arrays[1], mutable=[STATISTICS]))(
        params, images
    )
    expected, variances = forward(jax.tree.map(np.float64, params), np.float64(images))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    for name, variance in variances.items():
        np.testing.assert_allclose(found[STATISTICS][f"{name}_norm"]["var"], variance, rtol=1e-4)


def test_resnet_20_has_the_published_size():
    shapes = jax.eval_shape(ResNet(10).init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 269_722
