"""Experts choose their tokens, and no token is chosen by too many."""

import dataclasses

import jax
from jax import Array

import ops
from experiments.vmoe.routers.routing import Logits, PerExpert, Slots, fill_slots, gates_and_scores


@dataclasses.dataclass(frozen=True)
class BalancedExpertChoice(PerExpert):
    """The mask is a relaxed plan: those of an expert sum to `k`, those of a token to no more than `limit`.

    A sparse transport between experts and tokens (Liu, Puigcerver and Blondel, 2023), in the place of the auxiliary
    loss of token choice and of the auctions of BASE layers (Lewis et al., 2021). The buffer takes the tokens of largest
    mask; what does not fit has no part in the output. The gradient goes through gate and mask.

    Attributes:
      k: tokens of an expert, in [0, S].
      capacity: slots of its buffer, C, at least 1 and at most S.
      limit: experts of a token at most, a real number; with E k > S limit there is no plan.
      lam: strength of the relaxation in the units of the score, above 0; a number or a scalar array.
      p: exponent of the regularisation, in (1, 2].
      score: what experts and tokens are matched by, "gates" or "logits".
      max_iter: of the solver. Where they are too few, the tokens of an expert sum to k, and some have more experts.
      tol: how far the sums may be off.
    """

    k: int
    capacity: int
    limit: float
    lam: float | Array
    p: float = 2.0
    score: str = "logits"
    max_iter: int = 100
    tol: float = 1e-3

    def __call__(self, logits: Logits) -> Slots:
        """About `k` tokens for every expert, at most `capacity`, and about `limit` experts for a token."""
        gates, scores = gates_and_scores(logits, self.score)
        mask = ops.topk_plan(
            scores, self.k, self.limit, lam=self.lam, p=self.p, max_iter=self.max_iter, tol=self.tol
        ).plan
        _, token = jax.lax.top_k(jax.lax.stop_gradient(mask), self.capacity)
        return fill_slots(gates, mask, token)
