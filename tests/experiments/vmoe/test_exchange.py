"""Groups, slots and experts on a mesh of eight devices: the same numbers, and nothing travels but slots."""

import functools
import re

import jax
import ml_collections
import numpy as np
import pytest

from experiments.core.training import mesh as mesh_lib
from experiments.vmoe.layer import AUXILIARY, ROUTING, MoeLayer
from experiments.vmoe.routers import RelaxedExpertChoice, TokenChoice

SIZES = (2, 2, 2)  # along all three axes
GROUPS, IMAGES, TOKENS, WIDTH, EXPERTS = 8, 3, 4, 32, 8  # 3 images of 4 tokens are a group
# Whose experts fsdp divides.
LAYERS = {
    "relaxed": MoeLayer(EXPERTS, 64, RelaxedExpertChoice(3, 5, 1.0), IMAGES, "einsum"),
    "token choice": MoeLayer(EXPERTS, 64, TokenChoice(2, 5, "gates"), IMAGES, "gather"),
}
COLLECTIVES = ("all-gather", "all-to-all", "all-reduce", "reduce-scatter", "collective-permute", "collective-broadcast")
X, COTANGENT = np.random.default_rng(0).normal(size=(2, GROUPS * IMAGES, TOKENS, WIDTH)).astype(np.float32)


def mesh_of(**sizes):
    return mesh_lib.make(ml_collections.ConfigDict({"mesh": sizes} if sizes else {}))


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
def parameters():
    """Random ones of each layer, biases too, so that each one matters."""
    rng = np.random.default_rng(1)
    shapes = {name: jax.eval_shape(layer.init, jax.random.key(0), X)["params"] for name, layer in LAYERS.items()}
    return jax.tree.map(lambda leaf: (0.2 * rng.normal(size=leaf.shape)).astype(np.float32), shapes)


def compiled_gradients(mesh):
    """Of an outcome of all layers, at once; and arguments that lie where they do in training."""
    params = parameters()
    places = mesh_lib.state_shardings(mesh, params)
    arguments = jax.tree.map(mesh_lib.put, params, places), mesh_lib.put(X, mesh_lib.batch_sharding(mesh))

    def outcome(params, x, layer):
        y, sown = layer.apply({"params": params}, x, mutable=[ROUTING, AUXILIARY])
        auxiliary = sum(leaf.sum() for leaf in jax.tree.leaves(sown.get(AUXILIARY, {})))
        return (COTANGENT * y).sum() + auxiliary, dict(sown.get(ROUTING, {}))

    def gradients(params, x):
        of_layer = jax.value_and_grad(outcome, argnums=(0, 1), has_aux=True)
        return {name: of_layer(params[name], x, layer) for name, layer in LAYERS.items()}

    shardings = {name: (None, (places[name], None)) for name in LAYERS}
    return jax.jit(gradients, out_shardings=shardings).lower(*arguments).compile(), arguments


@pytest.fixture(scope="module")
def expected():
    """Outcomes with metrics, and gradients, on one device."""
    compiled, arguments = compiled_gradients(mesh_of())
    assert collectives(compiled) == []
    return jax.tree.map(np.asarray, compiled(*arguments))


def test_only_slots_and_parameters_travel(expected):
    """Compares results on a mesh with those of one device, and lists what is sent."""
    mesh = mesh_of(**dict(zip(mesh_lib.AXES, SIZES, strict=True)))
    with jax.set_mesh(mesh):
        compiled, arguments = compiled_gradients(mesh)
        found = compiled(*arguments)
    for name, ((outcome, measured), gradient) in found.items():
        (wanted, wanted_measured), wanted_gradient = expected[name]
        np.testing.assert_allclose(outcome, wanted, rtol=1e-5, err_msg=name)
        for metric, values in measured.items():
            # Shares in percent have an error of their own.
            np.testing.assert_allclose(values, wanted_measured[metric], rtol=1e-5, atol=1e-4, err_msg=name)
        assert measured, name
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(wanted_gradient)), name
        largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(wanted_gradient))
        for leaf, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(wanted_gradient), strict=True):
            np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-6 * largest, err_msg=name)
    expert = SIZES[2]
    moved = collectives(compiled)
    # Slots go there and back, and so do their gradients: [G, E, C, D] in as many parts as there are devices.
    assert len(named(moved, "all-to-all")) == 4 * len(found) * expert
    large = [leaf.shape for leaf in jax.tree.leaves(parameters()) if leaf.size >= mesh_lib.SMALLEST]
    assert len(large) == 2 * len(LAYERS)
    of_parameters = {tuple(sorted((EXPERTS // expert, *shape[1:]))) for shape in large}
    assert {tuple(sorted(shape)) for shape in named(moved, "all-gather")} == of_parameters
