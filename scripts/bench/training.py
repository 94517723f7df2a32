"""The sections ``losses`` and ``router``: training steps that differ in one part, beside that part by itself.

The overhead of a part is the ratio of the medians of whole steps, which the noise of the machine can exceed many times,
and what the part by itself takes longer than the reference, in units of a step. Images are random, weights as
initialised. Losses: steps of ``configs/cifar100_vit.py``; the paper's take 1.02 (p = 2) and 1.05 (p = 4/3) times one
with cross-entropy. Routers: steps of ``configs/vmoe.py`` at S/32 shapes (n = 400, 32 experts, k = 28). Beside them, on
logits of the same shape: every router with its buffers; gates times mask, relaxed, and hard as it is usually written,
by ``lax.top_k`` and one-hot; and both ways to dispatch. The overhead of a router leaves out what further slots cost the
experts. On a device fewer whole steps are timed: they take long to compile there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import ops
from configs import cifar100_vit, vmoe
from experiments.cifar100_vit import experiment as fine_tuning
from experiments.cifar100_vit.losses import fine_tuning_loss
from experiments.core.input.dataset import Data
from experiments.core.training.experiment import Experiment
from experiments.vmoe import dispatch, experiment, model, routers
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Calls, Contest, Summary

Settings = dict[str, Any]

CROSS_ENTROPY = "cross-entropy"
LOSSES: dict[str, dict[str, Any]] = {
    CROSS_ENTROPY: {"name": "xent"},
    "top-3, p = 2": {"name": "topk", "p": 2.0},
    "top-3, p = 4/3": {"name": "topk", "p": 4 / 3},
    "top-3, p = 2, smooth target": {"name": "topk", "p": 2.0, "target": "smooth"},
    "top-3, p = 4/3, smooth target": {"name": "topk", "p": 4 / 3, "target": "smooth"},
}
_LOSS_SCALES: dict[str, Settings] = {
    "small": {"variant": "Ti/16", "size": 32, "batch_size": 2, "seconds": 0.5},
    "cpu": {"variant": "B/16", "size": 384, "batch_size": 2, "seconds": 240.0},
    "device": {"variant": "B/16", "size": 384, "batch_size": 64, "seconds": 20.0, "steps": [*LOSSES][:3]},
}
HARD, DYKSTRA = "hard", "Dykstra, 10 iterations"
ROUTERS: dict[str, tuple[str, dict[str, Any]]] = {
    HARD: ("hard", {}),
    "relaxed, logits": ("relaxed", {}),
    "relaxed, gates": ("relaxed", {"router.score": "gates", "router.lam.start": 0.01}),
    "relaxed, p = 4/3": ("relaxed", {"router.p": 4 / 3}),
    "relaxed, 32 slots": ("relaxed", {"router.capacity": 32}),
    DYKSTRA: ("relaxed", {"router.dykstra": 10}),
    "token choice": ("token_choice", {}),
}
MASKS = "gates times relaxed mask", "gates times lax.top_k and one-hot"
DISPATCHERS = "gather", "einsum"
_ROUTER_SCALES: dict[str, Settings] = {
    "small": {"size": 64, "batch_size": 8, "seconds": 0.5},  # 32 tokens a group, as many as the slots
    "cpu": {"size": 224, "batch_size": 32, "seconds": 240.0},
    "device": {"size": 224, "batch_size": 1024, "seconds": 30.0, "steps": [*[*ROUTERS][:3], DYKSTRA]},
}


def losses(scale: str) -> Group:
    """One case: all losses take turns."""
    return Group(_LOSS_SCALES[scale], [Case("steps", functools.partial(_losses, _LOSS_SCALES[scale]))])


def router(scale: str) -> Group:
    """One case: all routers take turns."""
    return Group(_ROUTER_SCALES[scale], [Case("steps", functools.partial(_routers, _ROUTER_SCALES[scale]), 3.0)])


def _losses(settings: Settings, contest: Contest) -> Found:
    rng, batch_size, classes = np.random.default_rng(0), settings["batch_size"], 100
    logits = jnp.asarray(rng.normal(size=(batch_size, classes)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, classes, batch_size), jnp.int32)

    def alone(fields: dict[str, Any]) -> Callable[..., Any]:
        loss = fine_tuning_loss(**fields)
        return jax.value_and_grad(lambda logits, labels: loss(logits, labels).mean())

    calls = contest.compiled({name: alone(fields) for name, fields in LOSSES.items()}, logits, labels)
    configs = {}
    for name in settings.get("steps", LOSSES):
        configs[name] = config = cifar100_vit.get_config()
        config.update({"pretrained": "", "accelerator": False})
        config.model.update(variant=settings["variant"], dtype=_dtype())
        config.input.size = settings["size"]
        config.loss.update(LOSSES[name])
    steps = _steps(configs, fine_tuning.RECIPE, settings, classes, contest)
    by_itself, times = _times(calls, steps, settings, contest)
    return {"losses": overheads(times, by_itself, CROSS_ENTROPY), "failed": contest.failed}


def _routers(settings: Settings, contest: Contest) -> Found:
    config = router_config(HARD, settings["size"])
    groups, layers = settings["batch_size"] // config.moe.group_images, len(config.moe.blocks)
    parts = routers_alone(groups, settings["size"], contest)
    configs = {name: router_config(name, settings["size"]) for name in settings.get("steps", ROUTERS)}
    steps = _steps(configs, experiment.RECIPE, settings, 1000, contest)
    by_itself, times = _times(parts, steps, settings, contest)
    result: Found = {"routers": overheads(times, by_itself, HARD, layers), "failed": contest.failed}
    for section, names in (("masks", MASKS), ("dispatchers", DISPATCHERS)):
        result[section] = {name: by_itself[name]._asdict() for name in names if name in by_itself}
    return result


def _dtype() -> str:
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


def _steps(configs: Mapping[str, Any], recipe: Any, settings: Settings, num_classes: int, contest: Contest) -> Calls:
    """For every config a function that takes one training step, compiled; all from the same parameters."""
    rng, batch_size, size = np.random.default_rng(0), settings["batch_size"], settings["size"]
    examples: dict[str, np.ndarray] = {
        "image": rng.integers(0, 256, (batch_size, size, size, 3), dtype=np.uint8),
        "label": np.asarray(rng.integers(0, num_classes, batch_size), np.int32),
    }
    data = Data(train=examples, evaluation=examples, num_classes=num_classes, prefix="test")
    built = {name: recipe.build(config, data) for name, config in configs.items()}
    first = next(iter(built.values()))
    params = jax.jit(first.init)(jax.random.key(0))
    functions = {name: functools.partial(_step, one) for name, one in built.items()}
    return contest.compiled(functions, (params, first.optimizer.init(params)), jax.device_put(examples))


def _step(experiment: Experiment, state: Any, batch: Any) -> Any:
    params, opt_state = state
    images = experiment.augment(jax.random.key(0), batch["image"]) if experiment.augment else batch["image"]
    gradient, _ = jax.grad(experiment.loss, has_aux=True)(
        params, batch | {"image": images}, jax.random.key(0), jnp.float32(0)
    )
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = experiment.optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def _times(parts: Calls, steps: Calls, settings: Settings, contest: Contest) -> tuple[dict[str, Summary], ...]:
    """Times of parts by themselves, and of whole steps."""
    alone = contest.time(parts, Budget(min(20.0, settings["seconds"]), fewest=20, most=2000))
    return alone, contest.time(steps, Budget(settings["seconds"], fewest=3, most=200))


def overheads(
    times: Mapping[str, Summary], alone: Mapping[str, Summary], reference: str, parts: int = 1
) -> dict[str, dict[str, Any]]:
    """By contestant, its times and its overhead over ``reference``, for a step with ``parts`` of what was measured.

    Empty where the reference failed; otherwise without those that did, in a step or alone.
    """
    if not (reference in times and reference in alone):
        return {}
    step = times[reference].median_ms
    return {
        name: {
            "step": time._asdict(),
            "alone": alone[name]._asdict(),
            "ratio_of_steps": time.median_ms / step,
            "one_plus_extra_over_step": 1.0 + parts * (alone[name].median_ms - alone[reference].median_ms) / step,
        }
        for name, time in times.items()
        if name in alone
    }


def router_config(name: str, size: int) -> Any:
    """The config of a router, on images of ``size`` pixels without a pipeline."""
    kind, fields = ROUTERS[name]
    config = vmoe.get_config(f"router={kind}")
    config.update_from_flattened_dict({"accelerator": False, "input.size": size, "model.dtype": _dtype()} | fields)
    del config.mesh
    return config


def routers_alone(groups: int, size: int, contest: Contest) -> Calls:
    """Compiles every router and mask, with gradients in the logits, and both ways to dispatch, in the tokens."""
    config, rng = router_config(HARD, size), np.random.default_rng(0)
    shape, width = experiment.routing_shape(config), model.SIZES[config.model.variant.partition("/")[0]][0]
    logits, towards, tokens = (
        jnp.asarray(rng.normal(size=(groups, shape.tokens, last)), jnp.float32)
        for last in (config.moe.num_experts, config.moe.num_experts, width)
    )

    def route(name: str, logits: jax.Array) -> routers.Slots:
        config = router_config(name, size)
        router: Any = experiment.make_router(config, jnp.float32(config.router.lam.start))
        return cast(routers.Slots, router(routers.Logits(logits, logits)))

    def weights(name: str, logits: jax.Array) -> jax.Array:
        routed = route(name, logits)
        return (routed.weight * towards.swapaxes(1, 2)[..., : routed.weight.shape[-1]]).sum()

    def relaxed(logits: jax.Array) -> jax.Array:
        mask = ops.topk_mask(logits.swapaxes(1, 2), shape.k, lam=0.1)
        return (jax.nn.softmax(logits).swapaxes(1, 2) * mask * towards.swapaxes(1, 2)).sum()

    def usual(logits: jax.Array) -> jax.Array:
        gate, token = lax.top_k(jax.nn.softmax(logits).swapaxes(1, 2), shape.k)
        combine = (jax.nn.one_hot(token, shape.tokens, dtype=gate.dtype) * gate[..., None]).sum(axis=2)
        return (combine * towards.swapaxes(1, 2)).sum()

    def back_and_forth(name: str, tokens: jax.Array, routed: routers.Slots) -> jax.Array:
        dispatcher = dispatch.DISPATCHERS[name]
        return jnp.square(dispatcher.put(dispatcher.take(tokens, routed), routed)).sum()

    functions: dict[str, Callable[..., jax.Array]] = {name: functools.partial(weights, name) for name in ROUTERS}
    functions |= zip(MASKS, (relaxed, usual), strict=True)
    calls = contest.compiled({name: jax.value_and_grad(function) for name, function in functions.items()}, logits)
    routed = contest.attempt("dispatch", lambda: jax.jit(functools.partial(route, HARD))(logits))
    ways = {name: jax.value_and_grad(functools.partial(back_and_forth, name)) for name in DISPATCHERS}
    return calls | (contest.compiled(ways, tokens, routed) if routed is not None else {})
