"""Every claim of the paper that runs or timings can test; a comment tells what the paper says and where."""

import functools
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
    """A claim of the paper, and the one comparison that decides it.

    A claim that something is better holds where the whole 95 % interval of the difference is on its side, does not hold
    where all of it is on the other, and is not shown where it includes 0. A claim that two are level holds where the
    whole interval lies within a margin. Other settings and metrics are on the page.

    Attributes:
      short: the claim in a few words.
      by: the setting and the metric that decide it, which follow from the paper's sentence.
      find: returns our answers, given the directory of results; None if they hold nothing on the claim.
      page: the directory in the repository whose README has the details.
    """

    short: str
    by: str
    find: Callable[[Path], Finding | None]
    page: str


_PRUNING, _ROUTING = "results/mnist_pruning", "results/vmoe_tokens"
# In points: a third of the error that the paper reports for optimal transport, and the digits of its share of weights.
_LEVEL, _TENTH = 2.0, 0.05

CLAIMS = (
    # Section 6, Figure 5: pruning with it is more accurate than with a hard one (lam = 1e-4, p = 2 and 4/3).
    Claim("Relaxed top-k prunes better than hard", "p = 4/3, 10 % of each matrix kept", pruning.accuracy, _PRUNING),
    # Section 6, Figure 5: it trains significantly faster than with a hard top-k.
    Claim("Relaxed top-k trains faster", "the same, epochs to hard top-k's last error", pruning.speed, _PRUNING),
    # Section 6: the relaxed top-k maintains the rate of non-zero weights, 10 %.
    Claim(
        "Relaxed top-k keeps 10 % of the weights",
        f"the same, at the last step, within {_TENTH:g} points",
        functools.partial(pruning.density, margin=_TENTH),
        _PRUNING,
    ),
    # Section 6: a hard top-k with its gradient, 5.9 % test error, is comparable to the relaxed operators.
    Claim(
        "Optimal transport prunes as well as relaxed top-k",
        f"the same, errors differ by at most {_LEVEL:g} points",
        functools.partial(pruning.optimal_transport, margin=_LEVEL),
        _PRUNING,
    ),
    # Section 6, Figure 6: ViT-B/16 fine-tuned on CIFAR-100 is ahead in top-k accuracy, for various k.
    Claim(
        "Top-3 loss beats cross-entropy", "p = 4/3, top-3 accuracy", fine_tuning.accuracy, "results/cifar100_last_block"
    ),
    # Figure 6: a step takes 9.5 s, with the loss 9.7 s (p = 2, +2 %) and 10 s (p = 4/3, +5 %), on a TPUv3-8.
    Claim(
        "A top-3 loss costs hardly any time",
        "at most 2 % of a step (p = 4/3: 5 %)",
        benchmarks.losses,
        "results/bench",
    ),
    # Section 6, Figure 7: a V-MoE S/32 on JFT-300M has a better precision-at-1 than with hard top-k, in one run.
    Claim(
        "A relaxed router is more precise",
        "as the paper computes it (Dykstra, 10 iterations), precision-at-1",
        vmoe.precision,
        _ROUTING,
    ),
    # Figure 7: training the V-MoE takes 15 h, with hard top-k 10 h (+50 %), on a TPUv2-128.
    Claim("A relaxed router takes 1.5 times as long", "a training step", benchmarks.routers, "results/bench"),
    # Section 1: a hard top-k mask has null derivatives. Here, experts and their router are trained through it.
    Claim(
        "Hard masks are hard to train through",
        "a relaxed router trains to a lower loss",
        clusters.gradient,
        "results/vmoe_clusters",
    ),
    # Section 5, Figure 4: Dykstra's algorithm is faster than PAV on accelerators, there a TPU.
    Claim("Dykstra is faster than PAV", "a row of 400 entries", benchmarks.runtime, "results/bench"),
    # Section 5: it converges surprisingly fast, 100 iterations give the same output as PAV.
    Claim("100 iterations of Dykstra are exact", "error below 1e-3", benchmarks.convergence, "results/bench"),
    # Section 4, Figure 1: the relaxed top-k mask is exactly 0 for most entries.
    Claim("The relaxed mask is sparse", "lam = 0.1, normal entries", operators.sparsity, "ops"),
    # Section 4, Figures 1 and 3: it is differentiable everywhere for p = 4/3.
    Claim("The relaxed mask is differentiable everywhere", "p = 4/3", operators.smoothness, "ops"),
    # Appendix A.6: the error of the relaxed top-k in magnitude is at most lam max|x|.
    Claim("It is within lam max abs(x) of hard top-k", "in magnitude, p = 2, lam = 1e-4", operators.error_bound, "ops"),
    # Section 6: the top-3 loss with a one-hot target is a Fenchel-Young loss.
    Claim("Top-3 loss is a Fenchel-Young loss", "never below 0", operators.loss_is_bounded, "ops"),
)
