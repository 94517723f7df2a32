"""What the relaxed router adds to a step of V-MoE: ``python -m scripts.bench.router``.

Times training steps of ``configs/vmoe.py`` at S/32 shapes (n = 400, 32 experts, k = 28) that differ in the router
alone, taking turns. Beside them, on logits of the same shape and each with its gradient: every router by itself, with
its buffers; what outputs are weighed by, gates times mask, with the relaxed mask and with the hard one as it is usually
written, ``lax.top_k`` and one-hot; and both ways to dispatch. The overhead is given twice, as ``training.py`` says;
that of the router by itself leaves out what further slots cost the experts. Random images; weights as initialised.
About six minutes on two cores. Writes the section ``router`` of ``<results>/<hardware>.json``.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ops
from configs.vmoe import get_config
from experiments.core import console
from experiments.core.input.dataset import Data
from experiments.vmoe import dispatch, experiment, model, routers
from scripts.bench import record, training
from scripts.bench.failure import LostDeviceError, caught
from scripts.bench.timing import Budget, interleave

_MODULE = "scripts.bench.router"

NUM_CLASSES = 1000
REFERENCE = "hard"
ROUTERS: dict[str, tuple[str, dict[str, Any]]] = {
    REFERENCE: ("hard", {}),
    "relaxed, logits": ("relaxed", {}),
    "relaxed, gates": ("relaxed", {"router.score": "gates", "router.lam.start": 0.01}),
    "relaxed, p = 4/3": ("relaxed", {"router.p": 4 / 3}),
    "relaxed, 32 slots": ("relaxed", {"router.capacity": 32}),
    "Dykstra, 10 iterations": ("relaxed", {"router.dykstra": 10}),
    "token choice": ("token_choice", {}),
}
MASK, BY_TOP_K = "gates times relaxed mask", "gates times lax.top_k and one-hot"
GATHER, EINSUM = "gather", "einsum"
LIMIT = {"cpu": 1.05}
LIMIT_ELSEWHERE = 1.02  # the paper's is 1.5


def config_of(name: str, size: int) -> Any:
    """The config of a contestant, on images of `size` pixels without a pipeline."""
    router, fields = ROUTERS[name]
    config = get_config(f"router={router}")
    on_cpu = jax.default_backend() == "cpu"
    config.update_from_flattened_dict(
        {"accelerator": False, "input.size": size, "model.dtype": "float32" if on_cpu else "bfloat16"} | fields
    )
    del config.mesh
    return config


def _router(config: Any, lam: Any) -> routers.Router:
    return cast(routers.Router, experiment.make_router(config, lam))  # none of ROUTERS is without experts


def alone(groups: int, size: int, failed: MutableMapping[str, str] | None = None) -> dict[str, Callable[[], Any]]:
    """Every router, the mask and the usual hard one with their gradients in the logits, compiled; or `failed`."""
    shape = experiment.routing_shape(config_of(REFERENCE, size))
    num_experts = config_of(REFERENCE, size).moe.num_experts
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(groups, shape.tokens, num_experts)), jnp.float32)
    towards = jnp.asarray(rng.normal(size=logits.shape), jnp.float32)

    def weights(name: str, logits: jax.Array) -> jax.Array:
        config = config_of(name, size)
        routed = _router(config, jnp.float32(config.router.lam.start))(routers.Logits(logits, logits))
        assert isinstance(routed, routers.Slots)
        return (routed.weight * towards.swapaxes(1, 2)[..., : routed.weight.shape[-1]]).sum()

    def relaxed(logits: jax.Array) -> jax.Array:
        mask = ops.topk_mask(logits.swapaxes(1, 2), shape.k, lam=0.1)
        return (jax.nn.softmax(logits).swapaxes(1, 2) * mask * towards.swapaxes(1, 2)).sum()

    def usual(logits: jax.Array) -> jax.Array:
        gate, token = lax.top_k(jax.nn.softmax(logits).swapaxes(1, 2), shape.k)
        combine = (jax.nn.one_hot(token, shape.tokens, dtype=gate.dtype) * gate[..., None]).sum(axis=2)
        return (combine * towards.swapaxes(1, 2)).sum()

    functions: dict[str, Callable[..., jax.Array]] = {name: functools.partial(weights, name) for name in ROUTERS}
    functions |= {MASK: relaxed, BY_TOP_K: usual}
    calls: dict[str, Callable[[], Any]] = {}
    for name, function in functions.items():
        with caught(failed, name):
            calls[name] = training.called(jax.jit(jax.value_and_grad(function)), logits)
    return calls


def dispatchers(groups: int, size: int, failed: MutableMapping[str, str] | None = None) -> dict[str, Callable[[], Any]]:
    """Taking tokens to the hard router's slots and back, with the gradient in the tokens, compiled; or `failed`."""
    config = config_of(REFERENCE, size)
    shape, width = experiment.routing_shape(config), model.SIZES[config.model.variant.partition("/")[0]][0]
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(groups, shape.tokens, config.moe.num_experts)), jnp.float32)
    tokens = jnp.asarray(rng.normal(size=(groups, shape.tokens, width)), jnp.float32)
    with caught(failed, "dispatch"):
        routed = jax.jit(_router(config, 0.0))(routers.Logits(logits, logits))
    if failed and "dispatch" in failed:
        return {}

    def back_and_forth(dispatcher: dispatch.Dispatcher, tokens: jax.Array, routed: routers.Slots) -> jax.Array:
        return jnp.square(dispatcher.put(dispatcher.take(tokens, routed), routed)).sum()

    calls: dict[str, Callable[[], Any]] = {}
    for name in (GATHER, EINSUM):
        both = jax.jit(jax.value_and_grad(functools.partial(back_and_forth, dispatch.DISPATCHERS[name])))
        with caught(failed, name):
            calls[name] = training.called(both, tokens, routed)
    return calls


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """What the record holds.

    Raises:
      LostDeviceError: a contestant has ended the device.
    """
    config = config_of(REFERENCE, options.size)
    groups, layers = options.batch_size // config.moe.group_images, len(config.moe.blocks)
    failed: dict[str, str] = {}
    parts = alone(groups, options.size, failed) | dispatchers(groups, options.size, failed)
    by_itself = interleave(parts, Budget(25.0, fewest=20, most=2000), failed=failed)
    examples = training.random_images(options.batch_size, options.size, NUM_CLASSES)
    data = Data(train=examples, evaluation=examples, num_classes=NUM_CLASSES, prefix="test")
    experiments = {name: experiment.RECIPE.build(config_of(name, options.size), data) for name in ROUTERS}
    # Under names of their own: a router that fails in a step may be timed alone, and the other way round.
    failed_steps: dict[str, str] = {}
    calls = training.steps(experiments, examples, failed_steps)
    print(f"timing for {options.seconds:g} s", flush=True)
    times = interleave(calls, Budget(options.seconds, fewest=3, most=200), failed=failed_steps)
    failed |= {f"step, {name}": reason for name, reason in failed_steps.items()}
    rows = training.overheads(times, by_itself, REFERENCE, layers)
    masks, ways = (
        {name: by_itself[name]._asdict() for name in names if name in by_itself}
        for names in ((MASK, BY_TOP_K), (GATHER, EINSUM))
    )
    medians = {name: time.median_ms for name, time in by_itself.items()}
    limit = LIMIT.get(jax.default_backend(), LIMIT_ELSEWHERE)
    relaxed = rows.get("relaxed, logits", {})
    targets = [
        training.target(
            "step, relaxed of the logits over hard: ratio of medians", limit, relaxed.get("ratio_of_steps")
        ),
        training.target(
            "1 + (relaxed router of the logits less the hard one, all layers) / step",
            limit,
            relaxed.get("one_plus_extra_over_step"),
        ),
        training.target(f"{MASK} over {BY_TOP_K}, with gradient", 1.0, training.ratio(medians, MASK, BY_TOP_K)),
        training.target(
            f"dispatch by {GATHER} over {EINSUM}, with gradient", 1.0, training.ratio(medians, GATHER, EINSUM)
        ),
    ]
    settings = {"size": options.size, "batch_size": options.batch_size, "groups": groups, "layers": layers}
    timed = {"routers": rows, "masks": masks, "dispatchers": ways}
    return {"settings": settings, **timed, "failed": failed, "targets": targets}


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if a contestant failed."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--size", type=int, default=224, help="side of the images in pixels")
    parser.add_argument("--batch_size", type=int, help="images a step (1024; on a CPU 32)")
    parser.add_argument("--seconds", type=float, default=240.0, help="of timed steps, all together")
    options = record.parse(parser, arguments)
    if options.batch_size is None:
        options.batch_size = 32 if jax.default_backend() == "cpu" else 1024
    environment = record.begin(_MODULE, arguments, options.results)

    try:
        document = measure(options)
    except LostDeviceError as error:
        return training.lost(options.results, "router", environment, error)
    training.report(options.results, "router", environment, document, "routers")
    return int(bool(document["failed"]))


if __name__ == "__main__":
    console.run(main)
