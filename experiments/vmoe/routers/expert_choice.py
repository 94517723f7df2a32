"""Expert choice by a hard or a relaxed top-k over the tokens of a group."""

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
      k: the tokens of an expert, an integer in [1, S]; its buffer has as many slots.
      score: what tokens compete by, "gates" or "logits".
    """

    k: int
    score: str = "gates"

    def __call__(self, logits: Logits) -> Slots:
        """Routes exactly `k` tokens to each expert."""
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

    The mask sums to `k`. It is exactly 0 for most tokens, and above 0 for a few more than `k`. The buffer takes those
    with the largest mask; the others have no part in the output. The gradient goes through gate and mask.

    Attributes:
      k: the tokens of an expert, in [0, S].
      capacity: C, the slots of its buffer, in [1, S].
      lam: the strength of the relaxation in the units of the score, >= 0; a number or a scalar array. 0: the hard
        router.
      p: the exponent of the regularisation, in (1, 2].
      score: what tokens compete by, "gates" or "logits".
      iterations: the iterations of Dykstra's algorithm, of which the paper has 10, too few to converge; None: the exact
        solver.
    """

    k: float
    capacity: int
    lam: float | Array
    p: float = 2.0
    score: str = "logits"
    iterations: int | None = None

    def __call__(self, logits: Logits) -> Slots:
        """Routes about `k` tokens to each expert, at most `capacity`."""
        gates, scores = gates_and_scores(logits, self.score)
        solver: Solver = "threshold" if self.iterations is None else Dykstra(max_iter=self.iterations, tol=0.0)
        mask = ops.topk_mask(scores, self.k, lam=self.lam, p=self.p, solver=solver)
        # The exact mask grows with the score; the score also orders tokens whose mask is 1, as in the hard router.
        order = scores if self.iterations is None else mask
        _, token = jax.lax.top_k(jax.lax.stop_gradient(order), self.capacity)
        return fill_slots(gates, mask, token)

    def thresholds(self, logits: Logits) -> ops.TopkThreshold:
        """Returns the thresholds of the exact masks, [G, E], for `ThresholdExpertChoice`."""
        return ops.topk_threshold(gates_and_scores(logits, self.score)[1], self.k, lam=self.lam, p=self.p)


@dataclasses.dataclass(frozen=True)
class ThresholdExpertChoice(PerExpert):
    """The mask of a token follows from a threshold that was found before, whatever else is in its group.

    A network trained by expert choice then predicts independently of the neighbours. The number of tokens that an
    expert selects is no longer fixed; only which of them find room in the buffer depends on the group.

    Attributes:
      threshold: thresholds [G, E] of `RelaxedExpertChoice.thresholds`, or a mean of them, [E].
      capacity: C, the slots of the buffer, in [1, S].
      score: the score that the threshold is for, "gates" or "logits".
    """

    threshold: ops.TopkThreshold
    capacity: int
    score: str = "logits"

    def __call__(self, logits: Logits) -> Slots:
        """Lets each expert select any number of tokens, at most `capacity` of them in its buffer."""
        gates, scores = gates_and_scores(logits, self.score)
        _, token = jax.lax.top_k(jax.lax.stop_gradient(scores), self.capacity)
        return fill_slots(gates, self.threshold(scores), token)


@dataclasses.dataclass(frozen=True)
class StraightThroughExpertChoice(PerExpert):
    """The hard router with the gradient of the relaxed mask (the straight-through estimator of Bengio et al., 2013).

    Tokens in the buffer beyond the `k` have the weight 0, and a gradient that tells the router what they would gain.

    Attributes:
      k: the tokens of an expert, an integer in [1, S].
      capacity: C, the slots of its buffer, in [k, S].
      lam: the strength of the relaxation behind the gradient, as in `RelaxedExpertChoice`.
      p: the exponent of the regularisation, in (1, 2].
      score: what tokens compete by, "gates" or "logits".
    """

    k: int
    capacity: int
    lam: float | Array
    p: float = 2.0
    score: str = "logits"

    def __call__(self, logits: Logits) -> Slots:
        """Routes exactly `k` tokens to each expert."""
        gates, scores = gates_and_scores(logits, self.score)
        hard = ops.hard_topk_mask(scores, self.k)
        mask = ops.straight_through(hard, ops.topk_mask(scores, self.k, lam=self.lam, p=self.p))
        _, token = jax.lax.top_k(jax.lax.stop_gradient(scores), self.capacity)
        return fill_slots(gates, mask, token)
