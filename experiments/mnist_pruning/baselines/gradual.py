"""Gradual magnitude pruning (Zhu and Gupta 2017, "To prune, or not to prune")."""

import jax
import jax.numpy as jnp
import ml_collections
import optax

import ops
from experiments.core.report.style import BLUE
from experiments.mnist_pruning.method import Method, PruningMethod, State, Trial
from experiments.mnist_pruning.schedules import CUBIC, cubic_ends, cubic_setting, kept


def make(config: ml_collections.ConfigDict, total_steps: int) -> Method:
    """A mask keeps the largest weights, fewer every `density_schedule.every` steps by the cubic schedule.

    Weights that are masked do not learn, and keep their value: one comes back where those kept shrink below it. From
    the end of the schedule on the mask stays. Differs from the paper: the optimizer forgets the momentum of what is
    masked, and the last mask is made when the schedule ends, also where that is no multiple of `every`.
    """
    fields = config.density_schedule
    begin, end = round(fields.begin * total_steps), round(fields.end * total_steps)

    def init(w: jax.Array, key: jax.Array) -> State:
        del key
        return {"mask": jnp.ones_like(w)}

    def weights(w: jax.Array, state: State, progress: jax.Array, key: jax.Array | None) -> jax.Array:
        del progress, key
        return w * jax.lax.stop_gradient(state["mask"])

    def after_update(w: jax.Array, state: State, gradient: jax.Array, progress: jax.Array) -> tuple[jax.Array, State]:
        del gradient
        step = jnp.round(progress * total_steps)
        due = (step == end) | ((step % fields.every == 0) & (step >= begin) & (step < end))
        k = kept(config, w.size)
        mask = jax.lax.cond(due, lambda: ops.hard_topk_mask(jnp.abs(w), k(step / total_steps)), lambda: state["mask"])
        return w, {"mask": mask}

    return Method(
        weights,
        init=init,
        after_update=after_update,
        active=lambda state: state["mask"],
        optimizers={"mask": optax.set_to_zero()},
    )


GRADUAL = PruningMethod(
    make,
    "gradual magnitude pruning",
    (BLUE, "-."),
    setting=cubic_setting,
    reads=("density_schedule",),
    density_schedules=("cubic",),
    fields=CUBIC,
    cost=1.0,
    trials=dict,
    best=lambda: {"gradual": Trial(candidates=cubic_ends(0.7, 0.9))},
)
