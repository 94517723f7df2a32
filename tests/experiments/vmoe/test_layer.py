"""The layer of experts against NumPy, what its parts see of one another, and its random numbers."""

import dataclasses
import functools

import flax
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from experiments.core.training import mesh as mesh_lib
from experiments.vmoe import model
from experiments.vmoe.dispatch import DISPATCHERS
from experiments.vmoe.layer import AUXILIARY, NOISE, ROUTING, MoeLayer
from experiments.vmoe.routers import HardExpertChoice, Logits, RelaxedExpertChoice, SoftMoe, TokenChoice
from tests.experiments.vision import numpy_vit
from tests.experiments.vmoe import numpy_routing

RNG = np.random.default_rng(0)
B, S, D, H, E = 16, 3, 4, 5, 4  # images, tokens of each, widths, experts
IMAGES = 2  # of a group
K, CAPACITY, LAM = 2, 3, 2.0
X = RNG.normal(size=(B, S, D)).astype(np.float32)
ROUTERS = {
    "hard": HardExpertChoice(K),
    "relaxed": RelaxedExpertChoice(K, CAPACITY, LAM),
    "token choice": TokenChoice(2, CAPACITY, "gates"),
    "soft": SoftMoe(2),
}


def layer(router, **options):
    return MoeLayer(E, H, router, IMAGES, **options)


def random_params(router):
    """Every parameter random, biases too, so that each one matters."""
    shapes = jax.eval_shape(layer(router).init, jax.random.key(0), X)["params"]
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)


@functools.partial(jax.jit, static_argnums=0)
def apply(of_layer, params, x, rngs=None):
    return of_layer.apply({"params": params}, x, rngs=rngs, mutable=[ROUTING, AUXILIARY])


def expert_by_numpy(params, expert, token):
    own = flax.traverse_util.flatten_dict({"mlp": params["experts"]}, sep="/")
    return numpy_vit.mlp(token, {name: leaf[expert] for name, leaf in own.items()}, "mlp")


def weights_by_numpy(name, gates, logits, buffers):
    """[S, E] of one group: what the output of each expert weighs for each token."""
    mask, served = {
        "hard": lambda: numpy_routing.expert_choice(gates, K, K),
        "relaxed": lambda: numpy_routing.expert_choice(logits, K, CAPACITY, LAM),
        "token choice": lambda: numpy_routing.token_choice(gates, 2, CAPACITY, "gates"),
    }[name]()
    return gates * (numpy_routing.in_buffers(mask, served) if buffers else mask)


def group_by_numpy(name, params, tokens, buffers):
    if name == "soft":
        return soft_group_by_numpy(params, tokens)
    logits = tokens @ params["router"]
    weights = weights_by_numpy(name, numpy_routing.softmax(logits), logits, buffers)
    return sum(
        weights[:, [expert]] * np.stack([expert_by_numpy(params, expert, token) for token in tokens])
        for expert in range(E)
    )


def soft_group_by_numpy(params, tokens):
    length = lambda x, axis: np.sqrt(np.square(x).sum(axis=axis, keepdims=True))  # noqa: E731
    kernel = params["router"]
    logits = params["scale"] * (tokens / length(tokens, 1)) @ (kernel / length(kernel, 0))
    of_tokens, of_slots = numpy_routing.softmax(logits, axis=0), numpy_routing.softmax(logits, axis=1)
    return sum(
        np.outer(of_slots[:, slot], expert_by_numpy(params, slot // 2, of_tokens[:, slot] @ tokens))
        for slot in range(E * 2)
    )


def test_all_dispatchers_match_numpy():
    params = {name: random_params(router) for name, router in ROUTERS.items()}
    # All three where buffers may have room left, or too little.
    dispatchers = dict.fromkeys(ROUTERS, ("gather", "dense")) | {"token choice": tuple(DISPATCHERS)}

    @jax.jit
    def outputs(params, x):
        return {
            name: {by: apply(layer(ROUTERS[name], dispatcher=by), own, x) for by in dispatchers[name]}
            for name, own in params.items()
        }

    groups = X.astype(np.float64).reshape(B // IMAGES, IMAGES * S, D)
    for name, found in outputs(params, X).items():
        own = jax.tree.map(lambda leaf: leaf.astype(np.float64), params[name])
        for by, (y, _) in found.items():
            expected = np.reshape([group_by_numpy(name, own, tokens, by != "dense") for tokens in groups], (B, S, D))
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4, err_msg=f"{name} {by}")
        assert np.abs(expected).max() > 1
        # Buffers cost what they drop.
        assert (np.abs(found["gather"][0] - found["dense"][0]).max() > 0.01) == (name in ("relaxed", "token choice"))
        if name != "soft":
            without = found["dense"][1][ROUTING]  # buffers
            np.testing.assert_allclose(without["dropped_mass"], 0, atol=1e-4)
            of_all = without["experts_per_token_mean"] * S * IMAGES
            np.testing.assert_allclose(of_all, without["support"] * E, rtol=1e-6)


def test_bfloat16_experts_route_in_float32():
    params = random_params(ROUTERS["hard"])
    y, sown = apply(layer(ROUTERS["hard"]), params, X)
    half, half_sown = apply(layer(ROUTERS["hard"], dtype=jnp.bfloat16), params, X)
    assert half.dtype == jnp.bfloat16
    assert 1e-4 < np.abs(half.astype(np.float32) - y).max() / np.abs(y).max() < 0.03
    for found, expected in zip(jax.tree.leaves(half_sown), jax.tree.leaves(sown), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_bfloat16_outputs_sum_in_float32():
    """Of 1 and 32 times 2**-9: added one by one in bfloat16, the small ones would all be lost."""
    num_experts, width = 33, 3
    gates = np.full((1, 1, num_experts), 2.0**-9, np.float32)
    gates[..., 0] = 1
    ones = np.ones((1, num_experts, 1, width), jnp.bfloat16)

    @jax.jit
    def put(gates, ones):
        equal = jnp.zeros_like(gates)
        routed = TokenChoice(num_experts, 1)(Logits(equal, equal))
        routed = dataclasses.replace(routed, weight=gates.swapaxes(1, 2), combine=gates)
        return [dispatcher.put(ones, routed) for dispatcher in DISPATCHERS.values()]

    for found in put(gates, ones):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, np.full((1, 1, width), 1.0625, jnp.bfloat16))


def test_routing_has_highest_precision():
    params = random_params(ROUTERS["hard"])
    text = apply.lower(layer(ROUTERS["hard"], dispatcher="einsum"), params, X).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    whole = [line for line in products if "precision = [HIGHEST, HIGHEST]" in line]
    assert len(products) - len(whole) == 2  # the two of the experts, which have a precision of their own
    assert whole


def test_fresh_network_has_distinct_experts():
    network = model.make(
        "mu/8", 1000, moe_blocks=(0,), num_experts=E, router=HardExpertChoice(K), group_images=IMAGES, depth=1
    )
    images = RNG.normal(size=(IMAGES, 16, 16, 3)).astype(np.float32)
    logits, variables = jax.jit(network.init_with_output)(jax.random.key(0), images)
    np.testing.assert_allclose(logits, np.full((IMAGES, 1000), -np.log(1000)), rtol=1e-6)
    experts = variables["params"]["Transformer"]["encoderblock_0"]["MoeLayer_0"]["experts"]
    kernel = np.asarray(experts["Dense_0"]["kernel"])
    assert len({float(expert[0, 0]) for expert in kernel}) == E
    # Glorot's uniform distribution, of the widths of one expert.
    assert 0.9 < np.abs(kernel).max() / np.sqrt(6 / sum(kernel.shape[1:])) <= 1


def test_incomplete_groups_are_refused():
    with pytest.raises(ValueError, match="multiple of group_images=2, got 5"):
        layer(ROUTERS["hard"]).init(jax.random.key(0), X[:5])


@dataclasses.dataclass(frozen=True)
class Watched(HardExpertChoice):
    """Keeps the logits it sees."""

    seen: list = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, logits):
        self.seen.append(logits)
        return super().__call__(logits)


def test_noise_has_the_requested_scale():
    router = Watched(K)
    noisy = layer(router, noise=2.0)
    params, x = random_params(router), RNG.normal(size=(600, S, D)).astype(np.float32)

    @jax.jit
    def seen(key):
        noisy.apply({"params": params}, x, rngs={NOISE: key})
        return router.seen.pop()

    first, other = (seen(jax.random.key(seed)) for seed in (0, 1))
    np.testing.assert_allclose(first.clean, x.reshape(-1, IMAGES * S, D) @ params["router"], rtol=1e-4, atol=1e-4)
    noise = first.noisy - first.clean
    assert first.noise == 2.0 / E
    assert np.std(noise) == pytest.approx(2.0 / E, rel=0.03)  # of 7200 numbers
    assert np.mean(noise) == pytest.approx(0, abs=0.03)
    assert np.std(other.noisy - first.noisy) == pytest.approx(2**0.5 * 2.0 / E, rel=0.03)
    jax.eval_shape(lambda: layer(router).apply({"params": params}, X))  # without noise no key is needed
    logits = router.seen.pop()
    assert (logits.noise, logits.noisy is logits.clean) == (0, True)


def test_over_several_seeds_on_a_mesh():
    router = ROUTERS["soft"]
    params = [jax.tree.map(lambda leaf, factor=factor: factor * leaf, random_params(router)) for factor in (1.0, 0.5)]
    expected = [apply(layer(router), of_one, X)[0] for of_one in params]
    mesh = mesh_lib.make(ml_collections.ConfigDict({"mesh": {"data": 2, "fsdp": 1, "expert": 4}}))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    with jax.set_mesh(mesh):
        found = jax.jit(jax.vmap(lambda params: layer(router).apply({"params": params}, X)))(stacked)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
