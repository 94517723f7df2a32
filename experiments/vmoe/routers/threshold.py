"""Experts choose their tokens one by one: by a threshold that was found before, on other tokens."""

import dataclasses

import jax

import ops
from experiments.vmoe.routers.routing import Logits, PerExpert, Slots, fill_slots, gates_and_scores


@dataclasses.dataclass(frozen=True)
class ThresholdExpertChoice(PerExpert):
    """The mask of a token is that of expert choice with a given threshold, whatever else is in its group.

    For networks that were trained by expert choice, whose predictions then do not depend on their neighbours. How many
    tokens an expert takes is no longer fixed; the buffer takes those of largest score, and what does not fit has no
    part in the output. Only that depends on the group.

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
