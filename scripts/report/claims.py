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
      says: the claim.
      source: where the paper makes it, with the number that it states for it.
      find: reads our side from the directory of results; None where they hold nothing on it.
      page: the directory in the repository whose README tells our side in full.
    """

    short: str
    says: str
    source: str
    find: Callable[[Path], Finding | None]
    page: str


CLAIMS = (
    Claim(
        "Relaxed top-k prunes better than hard",
        "Pruning with the relaxed top-k leads to better accuracy than with a hard one (lam = 1e-4, p = 2 and 4/3).",
        "Section 6, Figure 5",
        pruning.accuracy,
        "results/mnist_pruning",
    ),
    Claim(
        "It trains faster than hard top-k",
        "It trains significantly faster than with a hard top-k.",
        "Section 6, Figure 5",
        pruning.speed,
        "results/mnist_pruning",
    ),
    Claim(
        "It keeps 10 % of the weights",
        "The relaxed top-k maintains the rate of non-zero weights.",
        "Section 6: 10 %",
        pruning.density,
        "results/mnist_pruning",
    ),
    Claim(
        "Optimal transport prunes as well",
        "A hard top-k with the gradient of optimal transport is comparable to the relaxed operators.",
        "Section 6: 5.9 % test error",
        pruning.optimal_transport,
        "results/mnist_pruning",
    ),
    Claim(
        "Top-3 loss beats cross-entropy",
        "ViT-B/16 fine-tuned on CIFAR-100 with the top-3 loss beats cross-entropy in top-k accuracy, for various k.",
        "Section 6, Figure 6",
        fine_tuning.accuracy,
        "results/cifar100_pretrained",
    ),
    Claim(
        "Top-3 loss costs hardly any time",
        "A step with the top-3 loss takes hardly longer than with cross-entropy.",
        "Figure 6: 9.5 s; 9.7 s (p = 2, +2 %); 10 s (p = 4/3, +5 %), on a TPUv3-8",
        benchmarks.losses,
        "results/bench",
    ),
    Claim(
        "A relaxed router is more precise",
        "A V-MoE S/32 with the relaxed router has a better precision-at-1 on JFT-300M than with hard top-k.",
        "Section 6, Figure 7: in a figure only, one run",
        vmoe.precision,
        "results/vmoe_tokens",
    ),
    Claim(
        "A relaxed router takes 1.5 times as long",
        "Training the V-MoE takes half as long again.",
        "Figure 7: 10 h; 15 h (+50 %), on a TPUv2-128",
        benchmarks.routers,
        "results/bench",
    ),
    Claim(
        "Hard masks are hard to train through",
        "A hard top-k mask has null derivatives, which makes it hard to train through: here, experts and their router.",
        "Section 1",
        clusters.gradient,
        "results/vmoe_clusters",
    ),
    Claim(
        "Dykstra is faster than PAV",
        "Dykstra's algorithm is faster than PAV on accelerators.",
        "Section 5, Figure 4: in a figure only, on a TPU",
        benchmarks.runtime,
        "results/bench",
    ),
    Claim(
        "100 iterations of Dykstra are exact",
        "It converges surprisingly fast: 100 iterations give the same output as PAV.",
        "Section 5: 100 iterations",
        benchmarks.convergence,
        "results/bench",
    ),
    Claim(
        "The relaxed mask is sparse",
        "The relaxed top-k mask is sparse: exactly 0 for most entries.",
        "Section 4, Figure 1",
        operators.sparsity,
        "ops",
    ),
    Claim(
        "It is differentiable everywhere, p = 4/3",
        "It is differentiable everywhere for p = 4/3.",
        "Section 4, Figures 1 and 3",
        operators.smoothness,
        "ops",
    ),
    Claim(
        "Its error is at most lam max abs(x)",
        "The error of the relaxed top-k in magnitude is at most lam max|x|.",
        "Appendix A.6: lam max|x|",
        operators.error_bound,
        "ops",
    ),
    Claim(
        "Top-3 loss is a Fenchel-Young loss",
        "The top-3 loss with a one-hot target is a Fenchel-Young loss.",
        "Section 6",
        operators.loss_is_bounded,
        "ops",
    ),
)
