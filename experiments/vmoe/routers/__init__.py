"""Routers decide which expert works on which token, and with which weight.

The axes are `G` groups, `S` tokens of a group, `E` experts, `C` slots in the buffer of an expert. Groups are
independent. A router takes the logits [G, S, E] of a dense layer, in float32, and returns

    Slots       for each expert the tokens in its buffer, and their weights; or
    Mixtures    for Soft MoE, whose slots hold averages of all tokens.

The gates are the softmax of the logits over the experts. An output has the weight gate times mask, without another
normalisation:

    HardExpertChoice              the mask is the hard top-k over the tokens of a group (Zhou et al. 2022)
    RelaxedExpertChoice           the mask is the relaxed top-k (Sander et al. 2023, Section 6)
    StraightThroughExpertChoice   the hard mask with the gradient of the relaxed one
    ThresholdExpertChoice         either of the first two by thresholds found before, for evaluation (2026)
    BalancedExpertChoice          a relaxed plan, with a limit to the experts of a token (Liu et al. 2023)
    TokenChoice                   each token selects its experts (Shazeer et al. 2017, Riquelme et al. 2021)
    SoftMoe                       no selection (Puigcerver et al. 2024)
    Dense                         no experts; it replaces a router

These are plain classes that do not depend on networks: `layer.py` has the layer, `dispatch.py` moves tokens.
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

RouterOrDense = Router | Dense  # the `router` of a layer

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
