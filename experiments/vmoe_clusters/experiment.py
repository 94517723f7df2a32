"""Linear experts behind a linear router, trained together on the squared error of the task.

The parameters are `problem`, drawn from the seed and not trained; `router` [D, E]; and `experts` [E, D, F].
"""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.core.config import require, require_one_of
from experiments.core.input.dataset import SPLITS, Data
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.vmoe.dispatch import DISPATCHERS
from experiments.vmoe.measures import measure
from experiments.vmoe.router_kinds import ROUTERS, Shape
from experiments.vmoe.routers import SCORES, HardExpertChoice, Logits, Slots
from experiments.vmoe_clusters import task
from experiments.vmoe_clusters.kinds import BEST, KINDS, NAMES, Assigned

_ExpertChoice = Callable[[Logits], Slots]  # the type of all routers in NAMES

# The numbers of the first groups for evaluation; those for training begin at 0.
_FIRST_GROUP = {"validation": 2**29, "test": 2**30}


def routing_shape(config: ml_collections.ConfigDict) -> Shape:
    """Returns the sizes of the routing, by `config.task` and `config.router.capacity`."""
    k = task.PER_TOKEN * config.task.tokens // config.task.experts
    return Shape(config.task.tokens, k, config.router.capacity or k)


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer does not know."""
    fields, router = config.task, config.router
    require(config.dataset == "clusters", "dataset", config.dataset, "'clusters', which the device draws")
    for name in ("tokens", "experts", "width", "outputs", "groups"):
        require(fields[name] > 0, f"task.{name}", fields[name], "positive")
    require(fields.noise >= 0, "task.noise", fields.noise, "at least 0")
    unit = f"a multiple of experts / {task.PER_TOKEN}, experts being {fields.experts}"
    require(task.PER_TOKEN * fields.tokens % fields.experts == 0, "task.tokens", fields.tokens, unit)
    shape = routing_shape(config)
    pairs = fields.experts * (fields.experts - 1) // 2
    require(fields.tokens <= pairs, "task.tokens", fields.tokens, f"at most the {pairs} pairs of clusters")
    require(fields.width >= fields.experts, "task.width", fields.width, f"at least the {fields.experts} experts")
    require_one_of("router.name", router.name, NAMES)
    require_one_of("router.score", router.score, SCORES)
    require(0 <= router.capacity <= shape.tokens, "router.capacity", router.capacity, f"in [0, {shape.tokens}]")
    for kind in map(ROUTERS.__getitem__, NAMES[1:]):
        kind.validate(router)
    if router.name != BEST:
        ROUTERS[router.name].validate_shape(router, shape, fields.experts)


def load(config: ml_collections.ConfigDict) -> Data:
    """Returns the numbers of the groups, from which the device makes tokens; training sees each once."""
    train = np.arange(config.steps * config.batch_size, dtype=np.int32)
    evaluation = _FIRST_GROUP[config.split] + np.arange(config.task.groups, dtype=np.int32)
    # The trainer counts examples by their labels.
    return Data({"label": train}, {"label": evaluation}, config.task.experts, SPLITS[config.split])


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """Returns the experiment on groups whose numbers are the labels of `data`."""
    shape, num_experts = routing_shape(config), config.task.experts
    width, outputs = config.task.width, config.task.outputs
    lam_of = optimizer.lam_schedule(config.router.lam, config.router.hard_after)

    def init(key: jax.Array) -> Params:
        problem_key, router_key, experts_key = jax.random.split(key, 3)
        scale = np.float32(width**-0.5)
        return {
            "problem": task.draw(problem_key, num_experts, width, outputs),
            "router": scale * jax.random.normal(router_key, (width, num_experts)),
            "experts": scale * jax.random.normal(experts_key, (num_experts, width, outputs)),
        }

    def sample(params: Params, batch: Batch) -> task.Groups:
        problem = jax.lax.stop_gradient(params["problem"])
        return task.sample(problem, batch["label"], config.task.noise, shape.k)

    def router(groups: task.Groups, progress: jax.Array) -> _ExpertChoice:
        if config.router.name == BEST:
            return Assigned(task.membership(groups.clusters, num_experts), shape.k)
        return cast(_ExpertChoice, ROUTERS[config.router.name].make(config.router, shape, lam_of(progress)))

    def squared_error(params: Params, groups: task.Groups, progress: jax.Array) -> tuple[jax.Array, Slots]:
        """Returns the errors [G], in units of the variance of the targets, which is 1, and the routing."""
        logits = jnp.matmul(groups.tokens, params["router"], precision=jax.lax.Precision.HIGHEST)  # as in `MoeLayer`
        routed = router(groups, progress)(Logits(logits, logits))
        slots = DISPATCHERS["gather"].take(groups.tokens, routed)
        outputs = DISPATCHERS["gather"].put(jnp.einsum("gecd,edf->gecf", slots, params["experts"]), routed)
        return jnp.square(outputs - groups.targets).mean(axis=(1, 2)), routed

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        value = squared_error(params, sample(params, batch), progress)[0].mean()
        return value, {"loss": value}

    def evaluate(params: Params, examples: Batch, progress: jax.Array) -> Metrics:
        groups = sample(params, examples)
        errors, routed = squared_error(params, groups, progress)
        of_centres = groups.tokens @ params["problem"]["centres"].T
        reachable = HardExpertChoice(shape.k, "logits")(Logits(of_centres, of_centres))

        def percent(slots: Slots) -> jax.Array:
            return 100.0 * task.recovery(slots.token[..., : shape.k], groups.clusters, num_experts)

        return {
            f"{data.prefix}_loss": 100.0 * errors,
            f"{data.prefix}_recovery": percent(routed),
            f"{data.prefix}_reachable": percent(reachable),
            f"{data.prefix}_router": measure(routed),
        }

    learned = {"learned": optimizer.make(config), "fixed": optax.set_to_zero()}
    labels = {"problem": "fixed", "router": "learned", "experts": "learned"}
    return Experiment(
        init, loss, evaluate, optax.multi_transform(learned, labels), headline=(f"{data.prefix}_recovery",)
    )


RECIPE = Recipe("vmoe_clusters", validate, build, load, kinds=KINDS)
