"""Expert choice with a limit to the experts of a token."""

import dataclasses

import jax
from jax import Array

import ops
from experiments.vmoe.routers.routing import Logits, PerExpert, Slots, fill_slots, gates_and_scores


@dataclasses.dataclass(frozen=True)
class BalancedExpertChoice(PerExpert):
    """The mask is a relaxed plan: its sum is `k` for each expert, and at most `limit` for each token.

    It is a sparse transport between experts and tokens (Liu, Puigcerver and Blondel, 2023), which replaces the
    auxiliary loss of token choice and the auctions of BASE layers (Lewis et al., 2021). The buffer takes the tokens of
    largest mask; the others have no part in the output. The gradient goes through gate and mask.

    Attributes:
      k: the tokens of an expert, in [0, S].
      capacity: C, the slots of its buffer, in [1, S].
      limit: the most experts of a token, a real number; if E k > S limit there is no plan.
      lam: the strength of the relaxation in the units of the score, above 0; a number or a scalar array.
      p: the exponent of the regularisation, in (1, 2].
      score: what experts and tokens are matched by, "gates" or "logits".
      max_iter: the most iterations of the solver. With too few, masks of an expert still sum to k, but some tokens have
        more experts than `limit`.
      tol: the error allowed in the sums.
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
        """Routes about `k` tokens to each expert, at most `capacity`, and a token to about `limit` experts at most."""
        gates, scores = gates_and_scores(logits, self.score)
        mask = ops.topk_plan(
            scores, self.k, self.limit, lam=self.lam, p=self.p, max_iter=self.max_iter, tol=self.tol
        ).plan
        _, token = jax.lax.top_k(jax.lax.stop_gradient(mask), self.capacity)
        return fill_slots(gates, mask, token)
