"""The types that routers take and return, and their building blocks. Axes as in the package."""

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
      token: [G, E, C] int32: the token in each slot, those of largest mask first. Where there are fewer, the slots left
        hold further tokens, with the weight 0.
      weight: [G, E, C] float32: what the output of the expert weighs.
      combine: [G, S, E] float32: the same weights, of all tokens that are selected, with room in the buffer or without.
      selected: [G, E] float32: the number of these tokens.
      mass: [G, E] float32: the sum of their weights.
      gates: [G, S, E] float32.
      auxiliary: [G] float32: the loss of the router itself.
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
    """Weights of tokens in each slot (`dispatch`) and of slots in each token (`combine`), both [G, S, E, C] float32."""

    dispatch: Array
    combine: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Logits:
    """The logits a router sees, [G, S, E] float32, with what noise there is in them.

    Attributes:
      noisy: those that decide.
      clean: the same without noise.
      noise: standard deviation of the noise; 0: there is none.
    """

    noisy: Array
    clean: Array
    noise: float = dataclasses.field(default=0.0, metadata={"static": True})


class Router(Protocol):
    """The interface of a router that `layer.MoeLayer` calls."""

    cosine: bool  # whether the logits are cosines, scaled, rather than products

    def num_logits(self, num_experts: int) -> int:
        """The number of logits of a token."""
        ...

    def __call__(self, logits: Logits) -> Slots | Mixtures:
        """Routes the tokens."""
        ...


class PerExpert:
    """A logit for each expert."""

    cosine = False

    def num_logits(self, num_experts: int) -> int:
        """E."""
        return num_experts


def unbounded(routed: Slots) -> Slots:
    """The same routing with room for every token in every buffer, C = S."""
    groups, num_tokens, num_experts = routed.combine.shape
    token = jnp.broadcast_to(jnp.arange(num_tokens, dtype=routed.token.dtype), (groups, num_experts, num_tokens))
    return dataclasses.replace(routed, token=token, weight=routed.combine.swapaxes(1, 2))


def gates_and_scores(logits: Logits, score: str) -> tuple[Array, Array]:
    """The gates [G, S, E], and the scores with the tokens last, [G, E, S]."""
    gates = jax.nn.softmax(logits.noisy)
    scores = {"gates": gates, "logits": logits.noisy}[score]
    return gates, scores.swapaxes(1, 2)


def fill_slots(gates: Array, mask: Array, token: Array) -> Slots:
    """The tokens with the weights gate times mask; `mask` is [G, E, S], `token` [G, E, C]."""
    combine = gates.swapaxes(1, 2) * mask
    weight = jnp.take_along_axis(combine, token, axis=-1)
    selected = (mask > 0).sum(axis=-1, dtype=gates.dtype)
    return Slots(token, weight, combine.swapaxes(1, 2), selected, combine.sum(axis=-1), gates, no_loss(gates))


def no_loss(gates: Array) -> Array:
    """[G], for routers without a loss of their own."""
    return jnp.zeros(gates.shape[0], gates.dtype)
