"""No experts, hence nothing to choose."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Dense:
    """Replaces the router: the layer is a single MLP of equal cost a token, or nothing, for reference.

    Attributes:
      tokens: of a group, S.
      slots: C, of each expert that the MLP stands for; 0: there is no MLP either.
    """

    tokens: int
    slots: int

    def num_logits(self, num_experts: int) -> int:
        """None."""
        del num_experts
        return 0

    def mlp_dim(self, num_experts: int, of_expert: int) -> int:
        """The width that makes S tokens cost what E C slots do in experts of the width `of_expert`, rounded."""
        return max(self.slots and 1, round(num_experts * self.slots * of_expert / self.tokens))
