"""Routers: which expert works on which token, and what its output weighs.

The axes are `G` groups, `S` tokens of a group, `E` experts, `C` slots in the buffer of an expert. Groups do not see
each other. A router takes the logits [G, S, E] of a dense layer, in float32, and returns

    Slots       for each expert the tokens in its buffer, and their weights; or
    Mixtures    for Soft MoE, whose slots hold averages of all tokens.

The gates are the softmax of the logits over the experts. An output is weighed by gate times mask, not normalised again:

    HardExpertChoice      the mask is the hard top-k over the tokens of a group (Zhou et al. 2022)
    RelaxedExpertChoice   the relaxed one (Sander et al. 2023, Section 6)
    TokenChoice           each token selects its experts (Shazeer et al. 2017, Riquelme et al. 2021)
    SoftMoe               no selection at all (Puigcerver et al. 2024)

These are plain classes, and know nothing of networks: `layer.py` has the layer, `dispatch.py` what moves tokens.
"""

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array

import ops
from ops.isotonic import Dykstra
from ops.topk import Solver

SCORES = ("gates", "logits")
PRIORITIES = ("order", "gates")


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
    """What each slot is made of, and each token of the slots: `dispatch` and `combine`, both [G, S, E, C] float32."""

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
    """What `layer.MoeLayer` needs of a router."""

    cosine: bool  # whether the logits are cosines, scaled, rather than products

    def num_logits(self, num_experts: int) -> int:
        """The number of logits of a token."""
        ...

    def __call__(self, logits: Logits) -> Slots | Mixtures:
        """Routes the tokens."""
        ...


class _PerExpert:
    """A logit for each expert."""

    cosine = False

    def num_logits(self, num_experts: int) -> int:
        """E."""
        return num_experts


@dataclasses.dataclass(frozen=True)
class HardExpertChoice(_PerExpert):
    """Every expert takes its `k` tokens of largest score in the group, ties by index.

    Attributes:
      k: tokens of an expert, an integer in [1, S]; its buffer has as many slots.
      score: what the tokens compete by, "gates" or "logits".
    """

    k: int
    score: str = "gates"

    def __call__(self, logits: Logits) -> Slots:
        """Exactly `k` tokens for every expert."""
        gates, scores = _gates_and_scores(logits, self.score)
        _, token = jax.lax.top_k(jax.lax.stop_gradient(scores), self.k)
        weight = jnp.take_along_axis(gates.swapaxes(1, 2), token, axis=-1)
        taken = jax.nn.one_hot(token, gates.shape[1], dtype=gates.dtype)  # [G, E, C, S], which the dense oracle needs
        combine = jnp.einsum("gecs,gec->gse", taken, weight, precision=jax.lax.Precision.HIGHEST)
        selected = jnp.full(weight.shape[:2], self.k, weight.dtype)
        return Slots(token, weight, combine, selected, weight.sum(axis=-1), gates, _no_loss(gates))


@dataclasses.dataclass(frozen=True)
class RelaxedExpertChoice(_PerExpert):
    """Every expert takes the relaxed top-k mask of its scores over the tokens of the group.

    The mask sums to `k` and is exactly 0 for most tokens, but for a few more than `k` of them it is not. The buffer
    takes those of largest mask; what does not fit has no part in the output. The gradient goes through gate and mask.

    Attributes:
      k: tokens of an expert, in [0, S].
      capacity: slots of its buffer, C, at least 1 and at most S.
      lam: strength of the relaxation in the units of the score, >= 0; a number or a scalar array. 0 is the hard router.
      p: exponent of the regularisation, in (1, 2].
      score: what the tokens compete by, "gates" or "logits".
      iterations: of Dykstra's algorithm, as in the paper, which does not converge in few; None: the exact solver.
    """

    k: int
    capacity: int
    lam: float | Array
    p: float = 2.0
    score: str = "logits"
    iterations: int | None = None

    def __call__(self, logits: Logits) -> Slots:
        """About `k` tokens for every expert, at most `capacity`."""
        gates, scores = _gates_and_scores(logits, self.score)
        solver: Solver = "threshold" if self.iterations is None else Dykstra(max_iter=self.iterations, tol=0.0)
        mask = ops.topk_mask(scores, self.k, lam=self.lam, p=self.p, solver=solver)
        # The exact mask grows with the score, which also tells apart those that are 1: the order of the hard router.
        order = scores if self.iterations is None else mask
        _, token = jax.lax.top_k(jax.lax.stop_gradient(order), self.capacity)
        return _slots(gates, mask, token)


@dataclasses.dataclass(frozen=True)
class TokenChoice(_PerExpert):
    """Every token takes its `selected` experts of largest gate; an expert serves no more than `capacity` of them.

    First choices come before second ones, and so on. In training, with noise, the importance and the load loss of
    Riquelme et al. (2021, Appendix A) keep the experts in balance.

    Attributes:
      selected: experts of a token, K in [1, E].
      capacity: slots of the buffer of an expert, C in [1, S].
      priority: who comes first among equal choices: "order", the first token of the group, or "gates", the token of
        largest gate (batch prioritized routing).
    """

    selected: int
    capacity: int
    priority: str = "order"

    def __call__(self, logits: Logits) -> Slots:
        """At most `selected` experts for every token, at most `capacity` tokens for every expert."""
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
        routed = _slots(gates, mask.swapaxes(1, 2), token)
        return dataclasses.replace(routed, auxiliary=self._auxiliary(logits))

    def _auxiliary(self, logits: Logits) -> Array:
        """The mean of importance and load loss, [G]; 0 without noise, where there is no load to expect."""
        if logits.noise == 0.0:
            return _no_loss(logits.clean)
        threshold = jax.lax.top_k(logits.noisy, self.selected)[0][..., -1:]
        # The probability that an expert is selected again if the noise is drawn anew.
        load = jax.scipy.stats.norm.sf((threshold - logits.clean) / logits.noise)
        return 0.5 * (_squared_variation(jax.nn.softmax(logits.clean)) + _squared_variation(load))


@dataclasses.dataclass(frozen=True)
class SoftMoe:
    """Every slot holds an average of all tokens, and every token gets an average of all slots: dense, for reference.

    Attributes:
      slots: of each expert, C.
    """

    slots: int
    cosine = True

    def num_logits(self, num_experts: int) -> int:
        """One for each slot of each expert: E times C."""
        return num_experts * self.slots

    def __call__(self, logits: Logits) -> Mixtures:
        """`dispatch` sums to 1 over the tokens, `combine` over the slots of all experts."""
        values = logits.noisy
        shape = (*values.shape[:2], values.shape[2] // self.slots, self.slots)
        dispatch = jax.nn.softmax(values, axis=1).reshape(shape)
        return Mixtures(dispatch, jax.nn.softmax(values, axis=2).reshape(shape))


def unbounded(routed: Slots) -> Slots:
    """The same routing with room for every token in every buffer, C = S."""
    groups, num_tokens, num_experts = routed.combine.shape
    token = jnp.broadcast_to(jnp.arange(num_tokens, dtype=routed.token.dtype), (groups, num_experts, num_tokens))
    return dataclasses.replace(routed, token=token, weight=routed.combine.swapaxes(1, 2))


def _gates_and_scores(logits: Logits, score: str) -> tuple[Array, Array]:
    """The gates [G, S, E], and the scores with the tokens last, [G, E, S]."""
    gates = jax.nn.softmax(logits.noisy)
    scores = {"gates": gates, "logits": logits.noisy}[score]
    return gates, scores.swapaxes(1, 2)


def _slots(gates: Array, mask: Array, token: Array) -> Slots:
    """The tokens with the weights gate times mask; `mask` is [G, E, S], `token` [G, E, C]."""
    combine = gates.swapaxes(1, 2) * mask
    weight = jnp.take_along_axis(combine, token, axis=-1)
    selected = (mask > 0).sum(axis=-1, dtype=gates.dtype)
    return Slots(token, weight, combine.swapaxes(1, 2), selected, combine.sum(axis=-1), gates, _no_loss(gates))


def _no_loss(gates: Array) -> Array:
    return jnp.zeros(gates.shape[0], gates.dtype)


def _squared_variation(values: Array) -> Array:
    """The squared coefficient of variation over the experts of the mean over the tokens; [G, S, E] to [G]."""
    mean = values.mean(axis=1)
    return mean.var(axis=1) / jnp.square(mean.mean(axis=1))
