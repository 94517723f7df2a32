"""The types that routers take and return, and their common parts. The package explains the axes."""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array

SCORES = ("gates", "logits")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Slots:
    """The buffers of the experts.

    Attributes:
      token: [G, E, C] int32, the token in each slot, those of largest mask first. If fewer are selected, the remaining
        slots hold other tokens with the weight 0.
      weight: [G, E, C] float32, the weight of the expert's output for the token.
      combine: [G, S, E] float32, the weights of all selected tokens, in the buffer or not.
      selected: [G, E] float32, the number of selected tokens.
      mass: [G, E] float32, the sum of their weights.
      gates: [G, S, E] float32.
      auxiliary: [G] float32, the router's own loss.
    """

    token: Array
    weight: Array
    combine: Array
    selected: Array
    mass: Array
    gates: Array
    auxiliary: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mixtures:
    """The weights of tokens in a slot (`dispatch`) and of slots in a token (`combine`), both [G, S, E, C] float32."""

    dispatch: Array
    combine: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Logits:
    """The logits that a router gets, [G, S, E] float32.

    Attributes:
      noisy: the logits with noise, which decide.
      clean: the logits without noise.
      noise: the standard deviation of the noise; 0: there is none.
    """

    noisy: Array
    clean: Array
    noise: float = dataclasses.field(default=0.0, metadata={"static": True})


class Router(Protocol):
    """The interface of a router for `layer.MoeLayer`."""

    cosine: bool  # whether the logits are cosines, scaled, rather than products

    def num_logits(self, num_experts: int) -> int:
        """Returns the number of logits of a token."""
        ...

    def __call__(self, logits: Logits) -> Slots | Mixtures:
        """Routes the tokens."""
        ...


class PerExpert:
    """The part of a router that has one logit for each expert."""

    cosine = False

    def num_logits(self, num_experts: int) -> int:
        """Returns E."""
        return num_experts


def unbounded(routed: Slots) -> Slots:
    """Returns the routing with room for every token in every buffer, C = S."""
    groups, num_tokens, num_experts = routed.combine.shape
    token = jnp.broadcast_to(jnp.arange(num_tokens, dtype=routed.token.dtype), (groups, num_experts, num_tokens))
    return dataclasses.replace(routed, token=token, weight=routed.combine.swapaxes(1, 2))


def gates_and_scores(logits: Logits, score: str) -> tuple[Array, Array]:
    """Returns the gates [G, S, E], and the scores with the tokens last, [G, E, S]."""
    gates = jax.nn.softmax(logits.noisy)
    scores = {"gates": gates, "logits": logits.noisy}[score]
    return gates, scores.swapaxes(1, 2)


def fill_slots(gates: Array, mask: Array, token: Array) -> Slots:
    """Returns buffers of `token` [G, E, C] with the weights gate times mask; `mask` is [G, E, S]."""
    combine = gates.swapaxes(1, 2) * mask
    weight = jnp.take_along_axis(combine, token, axis=-1)
    selected = (mask > 0).sum(axis=-1, dtype=gates.dtype)
    return Slots(token, weight, combine.swapaxes(1, 2), selected, combine.sum(axis=-1), gates, no_loss(gates))


def no_loss(gates: Array) -> Array:
    """Returns zeros [G], for routers without a loss."""
    return jnp.zeros(gates.shape[0], gates.dtype)
