"""Every claim of the paper that runs or timings can test, with the numbers it states, and where ours are found."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.cifar100_vit import report as fine_tuning
from experiments.core.report.finding import Finding
from experiments.mnist_pruning import report as pruning
from experiments.vmoe import report as vmoe
from experiments.vmoe_clusters import report as clusters
from scripts.report import benchmarks, operators


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
      short: the claim in a few words.
      says: where the paper makes it, its words, and the number that it states for it.
      find: reads our side from the directory of results; None where they hold nothing on it.
      page: the directory in the repository whose README tells our side in full.
    """

    short: str
    says: str
    find: Callable[[Path], Finding | None]
    page: str


CLAIMS = (
    Claim(
        "Relaxed top-k prunes better than hard",
        "Section 6, Figure 5: pruning with it is more accurate than with a hard one (lam = 1e-4, p = 2 and 4/3).",
        pruning.accuracy,
        "results/mnist_pruning",
    ),
    Claim(
        "It trains faster than hard top-k",
        "Section 6, Figure 5: it trains significantly faster than with a hard top-k.",
        pruning.speed,
        "results/mnist_pruning",
    ),
    Claim(
        "It keeps 10 % of the weights",
        "Section 6: the relaxed top-k maintains the rate of non-zero weights, 10 %.",
        pruning.density,
        "results/mnist_pruning",
    ),
    Claim(
        "Optimal transport prunes as well",
        "Section 6: a hard top-k with its gradient, 5.9 % test error, is comparable to the relaxed operators.",
        pruning.optimal_transport,
        "results/mnist_pruning",
    ),
    Claim(
        "Top-3 loss beats cross-entropy",
        "Section 6, Figure 6: ViT-B/16 fine-tuned on CIFAR-100 is ahead in top-k accuracy, for various k.",
        fine_tuning.accuracy,
        "results/cifar100_pretrained",
    ),
    Claim(
        "Top-3 loss costs hardly any time",
        "Figure 6: a step takes 9.5 s, with the loss 9.7 s (p = 2, +2 %) and 10 s (p = 4/3, +5 %), on a TPUv3-8.",
        benchmarks.losses,
        "results/bench",
    ),
    Claim(
        "A relaxed router is more precise",
        "Section 6, Figure 7: a V-MoE S/32 on JFT-300M has a better precision-at-1 than with hard top-k, in one run.",
        vmoe.precision,
        "results/vmoe_tokens",
    ),
    Claim(
        "A relaxed router takes 1.5 times as long",
        "Figure 7: training the V-MoE takes 15 h, with hard top-k 10 h (+50 %), on a TPUv2-128.",
        benchmarks.routers,
        "results/bench",
    ),
    Claim(
        "Hard masks are hard to train through",
        "Section 1: a hard top-k mask has null derivatives. Here, experts and their router are trained through it.",
        clusters.gradient,
        "results/vmoe_clusters",
    ),
    Claim(
        "Dykstra is faster than PAV",
        "Section 5, Figure 4: Dykstra's algorithm is faster than PAV on accelerators, there a TPU.",
        benchmarks.runtime,
        "results/bench",
    ),
    Claim(
        "100 iterations of Dykstra are exact",
        "Section 5: it converges surprisingly fast, 100 iterations give the same output as PAV.",
        benchmarks.convergence,
        "results/bench",
    ),
    Claim(
        "The relaxed mask is sparse",
        "Section 4, Figure 1: the relaxed top-k mask is exactly 0 for most entries.",
        operators.sparsity,
        "ops",
    ),
    Claim(
        "It is differentiable everywhere, p = 4/3",
        "Section 4, Figures 1 and 3: it is differentiable everywhere for p = 4/3.",
        operators.smoothness,
        "ops",
    ),
    Claim(
        "Its error is at most lam max abs(x)",
        "Appendix A.6: the error of the relaxed top-k in magnitude is at most lam max|x|.",
        operators.error_bound,
        "ops",
    ),
    Claim(
        "Top-3 loss is a Fenchel-Young loss",
        "Section 6: the top-3 loss with a one-hot target is a Fenchel-Young loss.",
        operators.loss_is_bounded,
        "ops",
    ),
)
