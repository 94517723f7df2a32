"""Routers: which expert works on which token, and what its output weighs.

The axes are `G` groups, `S` tokens of a group, `E` experts, `C` slots in the buffer of an expert. Groups do not see
each other. A router takes the logits [G, S, E] of a dense layer, in float32, and returns

    Slots       for each expert the tokens in its buffer, and their weights; or
    Mixtures    for Soft MoE, whose slots hold averages of all tokens.

The gates are the softmax of the logits over the experts. An output is weighed by gate times mask, not normalised again:

    HardExpertChoice              the mask is the hard top-k over the tokens of a group (Zhou et al. 2022)
    RelaxedExpertChoice           the relaxed one (Sander et al. 2023, Section 6)
    StraightThroughExpertChoice   the hard one, with the gradient of the relaxed one
    ThresholdExpertChoice         either of the first two by thresholds found before, for evaluation (2026)
    BalancedExpertChoice          a relaxed plan, with a limit to the experts of a token (Liu et al. 2023)
    TokenChoice                   each token selects its experts (Shazeer et al. 2017, Riquelme et al. 2021)
    SoftMoe                       no selection at all (Puigcerver et al. 2024)
    Dense                         no experts either: takes the place of a router where there is to be none

These are plain classes, and know nothing of networks: `layer.py` has the layer, `dispatch.py` what moves tokens.
"""

from experiments.vmoe.routers.balanced import BalancedExpertChoice
from experiments.vmoe.routers.dense import Dense
from experiments.vmoe.routers.expert_choice import (
    HardExpertChoice,
    RelaxedExpertChoice,
    StraightThroughExpertChoice,
    ThresholdExpertChoice,
)
from experiments.vmoe.routers.routing import SCORES, Logits, Mixtures, Router, Slots, unbounded
from experiments.vmoe.routers.soft_moe import SoftMoe
from experiments.vmoe.routers.token_choice import PRIORITIES, TokenChoice

RouterOrDense = Router | Dense  # what a layer is given

__all__ = [
    "PRIORITIES",
    "SCORES",
    "BalancedExpertChoice",
    "Dense",
    "HardExpertChoice",
    "Logits",
    "Mixtures",
    "RelaxedExpertChoice",
    "Router",
    "RouterOrDense",
    "Slots",
    "SoftMoe",
    "StraightThroughExpertChoice",
    "ThresholdExpertChoice",
    "TokenChoice",
    "unbounded",
]
