"""Groups, slots and experts on meshes of eight devices: the same numbers, and nothing travels but slots."""

import functools
import re

import jax
import ml_collections
import numpy as np
import pytest

from configs.vmoe import get_config
from experiments.core.input.dataset import Data
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import step
from experiments.vmoe.experiment import RECIPE

# Soft MoE is divided in test_layer.py.
CASES = (("relaxed", "einsum"), ("token_choice", "gather"))
SIZES = (2, 2, 2)  # along all three axes
GROUPS, IMAGES, EXPERTS = 8, 3, 8  # 3 images of 4 tokens are a group
COLLECTIVES = ("all-gather", "all-to-all", "all-reduce", "reduce-scatter", "collective-permute", "collective-broadcast")


def mesh_of(sizes):
    config = ml_collections.ConfigDict({"mesh": dict(zip(mesh_lib.AXES, sizes, strict=True))})
    return mesh_lib.make(config)


def collectives(compiled):
    """Of a compiled function's text, (operation, shape of one of its results), in order."""
    found = []
    for line in re.sub(r"/\*.*?\*/", "", compiled.as_text()).splitlines():
        match = re.search(rf" = (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(", line)
        for dimensions in re.findall(r"\w\[([\d,]*)\]", match[1]) if match else ():
            found.append((match[2], tuple(int(size) for size in dimensions.split(",") if size)))
    return found


def named(found, name):
    return [shape for operation, shape in found if operation == name]


@functools.cache
def experiment(router, dispatcher):
    """A network of one block, with experts that fsdp divides."""
    config = get_config(f"small,router={router}")
    fields = {
        "model": {"depth": 1, "width": 32, "mlp_dim": 64, "variant": "mu/16"},
        "moe": {"blocks": (0,), "num_experts": EXPERTS, "group_images": IMAGES, "dispatcher": dispatcher},
        "router": {"k": 3, "capacity": 5, "lam": {"start": 1.0}},
    }
    config.update(fields)
    images = np.zeros((1, 32, 32, 3), np.uint8)
    examples = {"image": images, "label": np.zeros(1, np.int32)}
    return RECIPE.build(config, Data(examples, examples, 10, "test"))


@functools.cache
def inputs():
    """Random parameters of each case, biases and head too, so that each one matters; and a batch."""
    rng = np.random.default_rng(0)
    shapes = [jax.eval_shape(experiment(*case).init, jax.random.key(0)) for case in CASES]
    params = jax.tree.map(lambda leaf: (0.2 * rng.normal(size=leaf.shape)).astype(np.float32), shapes)
    batch = {
        "image": rng.normal(size=(GROUPS * IMAGES, 32, 32, 3)).astype(np.float32),
        "label": rng.integers(0, 10, GROUPS * IMAGES, dtype=np.int32),
    }
    return params, batch


def compiled_gradients(mesh):
    """Of the losses of all cases, at once; and arguments that lie where they do in training."""
    params, batch = inputs()
    states = [step.abstract(experiment(*case), np.int32(0), mesh).params for case in CASES]
    places = jax.tree.map(lambda leaf: leaf.sharding, states)
    arguments = (
        jax.tree.map(mesh_lib.put, params, places),
        jax.tree.map(lambda array: mesh_lib.put(array, mesh_lib.batch_sharding(mesh)), batch),
    )

    def gradients(params, batch):
        key, progress = jax.random.key(3), np.float32(0.5)
        return [
            jax.value_and_grad(experiment(*case).loss, has_aux=True)(own, batch, key, progress)
            for case, own in zip(CASES, params, strict=True)
        ]

    shardings = [(None, own) for own in places]
    return jax.jit(gradients, out_shardings=shardings).lower(*arguments).compile(), arguments


@pytest.fixture(scope="module")
def expected():
    """Losses with metrics, and gradients, on one device."""
    compiled, arguments = compiled_gradients(mesh_lib.make(ml_collections.ConfigDict()))
    assert collectives(compiled) == []
    return dict(zip(CASES, jax.tree.map(np.asarray, compiled(*arguments)), strict=True))


def test_every_parameter_has_a_gradient_and_the_router_its_metrics(expected):
    for (router, _), ((loss, measured), gradient) in expected.items():
        assert np.isfinite(loss)
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
            assert np.isfinite(leaf).all(), (router, path)
            # Softmax is blind to what all keys share.
            assert np.abs(leaf).max() > 0 or "'key'" in str(path), (router, path)
        assert ("auxiliary" in measured) == (router == "token_choice")
        assert measured["router"].keys() == {"block_0"}
        if router == "token_choice":
            assert 1 < measured["router"]["block_0"]["experts_per_token_mean"] <= 2


def test_on_a_mesh_it_is_the_same_and_only_slots_and_parameters_travel(expected):
    mesh = mesh_of(SIZES)
    with jax.set_mesh(mesh):
        compiled, arguments = compiled_gradients(mesh)
        found = compiled(*arguments)
    for case, (loss_and_metrics, gradient) in zip(CASES, found, strict=True):
        expected_metrics, expected_gradient = expected[case]
        for value, other in zip(jax.tree.leaves(loss_and_metrics), jax.tree.leaves(expected_metrics), strict=True):
            # Shares in percent have an error of their own.
            np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-4, err_msg=str(case))
        np.testing.assert_allclose(loss_and_metrics[0], expected_metrics[0], rtol=1e-5)
        largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected_gradient))
        for leaf, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
            np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-6 * largest, err_msg=str(case))
    expert = SIZES[2]
    moved = collectives(compiled)
    # Slots go there and back, and so do their gradients: [G, E, C, D] in as many parts as there are devices.
    assert len(named(moved, "all-to-all")) == 4 * len(found) * expert
    large = [leaf.shape for leaf in jax.tree.leaves(inputs()[0]) if leaf.size >= mesh_lib.SMALLEST]
    of_parameters = {
        tuple(sorted((shape[0] // expert, *shape[1:]) if shape[0] == EXPERTS else shape)) for shape in large
    }
    assert len(large) == 3 * len(CASES)
    assert {tuple(sorted(shape)) for shape in named(moved, "all-gather")} == of_parameters
