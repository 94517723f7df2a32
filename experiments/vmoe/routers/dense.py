"""A layer without experts, for reference."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Dense:
    """Replaces the router: the layer is a single MLP with the cost of the experts, or nothing.

    Attributes:
      tokens: S, the tokens of a group.
      slots: C, the slots of each expert that the MLP stands for; 0: there is no MLP either.
    """

    tokens: int
    slots: int

    def num_logits(self, num_experts: int) -> int:
        """Returns 0: there is no router."""
        return 0

    def mlp_dim(self, num_experts: int, of_expert: int) -> int:
        """Returns the width at which S tokens cost as much as E C slots in experts of width `of_expert`, rounded."""
        return max(self.slots and 1, round(num_experts * self.slots * of_expert / self.tokens))
