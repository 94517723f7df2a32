"""Soft MoE: slots hold averages of all tokens."""

import dataclasses

import jax

from experiments.vmoe.routers.routing import Logits, Mixtures


@dataclasses.dataclass(frozen=True)
class SoftMoe:
    """Every slot holds an average of all tokens, and every token gets an average of all slots: dense, for reference.

    Attributes:
      slots: C, the slots of each expert.
    """

    slots: int
    cosine = True

    def num_logits(self, num_experts: int) -> int:
        """Returns E C: one logit for each slot of each expert."""
        return num_experts * self.slots

    def __call__(self, logits: Logits) -> Mixtures:
        """Returns mixtures whose `dispatch` sums to 1 over tokens, and `combine` over the slots of all experts."""
        values = logits.noisy
        shape = (*values.shape[:2], values.shape[2] // self.slots, self.slots)
        dispatch = jax.nn.softmax(values, axis=1).reshape(shape)
        return Mixtures(dispatch, jax.nn.softmax(values, axis=2).reshape(shape))
