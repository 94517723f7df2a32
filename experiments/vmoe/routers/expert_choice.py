"""Experts choose their tokens: by a hard or a relaxed top-k over the tokens of a group."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

import ops
from experiments.vmoe.routers.routing import Logits, PerExpert, Slots, fill_slots, gates_and_scores, no_loss
from ops.isotonic import Dykstra
from ops.topk import Solver


@dataclasses.dataclass(frozen=True)
class HardExpertChoice(PerExpert):
    """Every expert takes its `k` tokens of largest score in the group, ties by index.

    Attributes:
      k: tokens of an expert, an integer in [1, S]; its buffer has as many slots.
      score: what the tokens compete by, "gates" or "logits".
    """

    k: int
    score: str = "gates"

    def __call__(self, logits: Logits) -> Slots:
        """Exactly `k` tokens for every expert."""
        gates, scores = gates_and_scores(logits, self.score)
        _, token = jax.lax.top_k(jax.lax.stop_gradient(scores), self.k)
        weight = jnp.take_along_axis(gates.swapaxes(1, 2), token, axis=-1)
        taken = jax.nn.one_hot(token, gates.shape[1], dtype=gates.dtype)  # [G, E, C, S], which the dense oracle needs
        combine = jnp.einsum("gecs,gec->gse", taken, weight, precision=jax.lax.Precision.HIGHEST)
        selected = jnp.full(weight.shape[:2], self.k, weight.dtype)
        return Slots(token, weight, combine, selected, weight.sum(axis=-1), gates, no_loss(gates))


@dataclasses.dataclass(frozen=True)
class RelaxedExpertChoice(PerExpert):
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

    k: float
    capacity: int
    lam: float | Array
    p: float = 2.0
    score: str = "logits"
    iterations: int | None = None

    def __call__(self, logits: Logits) -> Slots:
        """About `k` tokens for every expert, at most `capacity`."""
        gates, scores = gates_and_scores(logits, self.score)
        solver: Solver = "threshold" if self.iterations is None else Dykstra(max_iter=self.iterations, tol=0.0)
        mask = ops.topk_mask(scores, self.k, lam=self.lam, p=self.p, solver=solver)
        # The exact mask grows with the score, which also tells apart those that are 1: the order of the hard router.
        order = scores if self.iterations is None else mask
        _, token = jax.lax.top_k(jax.lax.stop_gradient(order), self.capacity)
        return fill_slots(gates, mask, token)

    def thresholds(self, logits: Logits) -> ops.TopkThreshold:
        """The thresholds of its exact masks, [G, E], for `ThresholdExpertChoice`."""
        return ops.topk_threshold(gates_and_scores(logits, self.score)[1], self.k, lam=self.lam, p=self.p)


@dataclasses.dataclass(frozen=True)
class ThresholdExpertChoice(PerExpert):
    """The mask of a token is that of expert choice by a threshold that was found before, whatever else is in its group.

    For networks that were trained by expert choice, whose predictions then do not depend on their neighbours. How many
    tokens an expert selects is no longer fixed; only what finds room in the buffer depends on the group.

    Attributes:
      threshold: of `RelaxedExpertChoice.thresholds`, [G, E], or a mean of them, [E].
      capacity: slots of the buffer, C, at least 1 and at most S.
      score: what the threshold was found for, "gates" or "logits".
    """

    threshold: ops.TopkThreshold
    capacity: int
    score: str = "logits"

    def __call__(self, logits: Logits) -> Slots:
        """Any number of tokens for an expert, at most `capacity` of them in its buffer."""
        gates, scores = gates_and_scores(logits, self.score)
        _, token = jax.lax.top_k(jax.lax.stop_gradient(scores), self.capacity)
        return fill_slots(gates, self.threshold(scores), token)


@dataclasses.dataclass(frozen=True)
class StraightThroughExpertChoice(PerExpert):
    """The hard router with the gradient of the relaxed mask (the straight-through estimator of Bengio et al., 2013).

    Tokens in the buffer beyond the `k` have the weight 0 and a gradient, which tells the router what they would gain.

    Attributes:
      k: tokens of an expert, an integer in [1, S].
      capacity: slots of its buffer, C, at least k and at most S.
      lam: strength of the relaxation behind the mask, as of `RelaxedExpertChoice`.
      p: exponent of the regularisation, in (1, 2].
      score: what the tokens compete by, "gates" or "logits".
    """

    k: int
    capacity: int
    lam: float | Array
    p: float = 2.0
    score: str = "logits"

    def __call__(self, logits: Logits) -> Slots:
        """Exactly `k` tokens for every expert."""
        gates, scores = gates_and_scores(logits, self.score)
        hard = ops.hard_topk_mask(scores, self.k)
        mask = ops.straight_through(hard, ops.topk_mask(scores, self.k, lam=self.lam, p=self.p))
        _, token = jax.lax.top_k(jax.lax.stop_gradient(scores), self.capacity)
        return fill_slots(gates, mask, token)
