"""Token choice: tokens select their experts."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import Array

from experiments.vmoe.routers.routing import Logits, PerExpert, Slots, fill_slots, no_loss

PRIORITIES = ("order", "gates")


@dataclasses.dataclass(frozen=True)
class TokenChoice(PerExpert):
    """Every token takes its `selected` experts of largest gate; an expert serves at most `capacity` tokens.

    First choices come before second ones, and so on. In training with noise, the importance and the load loss of
    Riquelme et al. (2021, Appendix A) keep the experts in balance.

    Attributes:
      selected: K in [1, E], the experts of a token.
      capacity: C in [1, S], the slots of an expert's buffer.
      priority: which token comes first among equal choices: "order", the first in the group, or "gates", the one with
        the largest gate (batch prioritized routing).
    """

    selected: int
    capacity: int
    priority: str = "order"

    def __call__(self, logits: Logits) -> Slots:
        """Routes each token to at most `selected` experts, and at most `capacity` tokens to each expert."""
        gates = jax.nn.softmax(logits.noisy)
        largest, expert = jax.lax.top_k(gates, self.selected)  # [G, S, K]
        num_tokens, num_experts = gates.shape[1:]
        if self.priority == "gates":
            rank = jnp.argsort(jnp.argsort(-largest[..., 0], stable=True), stable=True)
        else:
            rank = jnp.arange(num_tokens)[None]
        choice = jnp.arange(self.selected)[None, None]
        place = choice * num_tokens + rank[..., None]  # [G, S, K], all different in a group
        chosen = jax.nn.one_hot(expert, num_experts, dtype=gates.dtype)  # [G, S, K, E]
        mask = chosen.sum(axis=2)
        order = jnp.where(mask > 0, -(chosen * place[..., None].astype(gates.dtype)).sum(axis=2), -jnp.inf)
        _, token = jax.lax.top_k(jax.lax.stop_gradient(order).swapaxes(1, 2), self.capacity)
        routed = fill_slots(gates, mask.swapaxes(1, 2), token)
        return dataclasses.replace(routed, auxiliary=self._auxiliary(logits))

    def _auxiliary(self, logits: Logits) -> Array:
        """Returns the mean of importance and load loss, [G]; 0 without noise, which the load needs."""
        if logits.noise == 0.0:
            return no_loss(logits.clean)
        threshold = jax.lax.top_k(logits.noisy, self.selected)[0][..., -1:]
        # The probability that an expert is selected if its noise is drawn again.
        load = _exceeds((threshold - logits.clean) / logits.noise)
        return 0.5 * (_squared_variation(jax.nn.softmax(logits.clean)) + _squared_variation(load))


@jax.custom_jvp
def _exceeds(z: Array) -> Array:
    """Returns the probability that a standard normal variable exceeds z.

    It has its own derivative because JAX 0.12 cannot differentiate the error function inside `shard_map`.
    """
    return 0.5 * jax.lax.erfc(math.sqrt(0.5) * z)


_exceeds.defjvps(lambda z_dot, probability, z: -math.sqrt(0.5 / math.pi) * jnp.exp(-0.5 * z * z) * z_dot)


def _squared_variation(values: Array) -> Array:
    """[G, S, E] to [G]: the squared coefficient of variation, over experts, of the mean over tokens."""
    mean = values.mean(axis=1)
    return mean.var(axis=1) / jnp.square(mean.mean(axis=1))
