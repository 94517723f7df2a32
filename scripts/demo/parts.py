"""The experiments that the demo trains, and the comparisons that it reports."""

import dataclasses
from collections.abc import Mapping, Sequence

from experiments.core.suite.plan import find

PRESET = "demo"


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """An experiment of the demo.

    Attributes:
      title: its name in the demo.
      experiment: the name of its package below `experiments`.
      seconds: about how long a run takes, two at once on two quiet cores.
      figure: the picture on the page, below the directory of the runs.
      heading: its heading in the summary, which names the metric.
      metric: the metric of a run by its name in the last row (`test_accuracy/3`).
      lower: whether a lower value is better.
      labels: the labels of the runs in the summary, by name.
      questions: pairs of these runs: is the first better than the second? The first pair is that of the conclusion.
    """

    title: str
    experiment: str
    seconds: float
    figure: str
    heading: str = ""
    metric: str = ""
    lower: bool = False
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    questions: Sequence[tuple[str, str]] = ()

    @property
    def package(self) -> str:
        """`python -m <package>` trains its runs."""
        return f"experiments.{self.experiment}.suite"

    def runs(self, everything: bool) -> list[str]:
        """Returns the names of the runs to train: those of the summary and what they start from, or `everything`."""
        names = [run.name for run in find(self.package).presets[PRESET]()]
        return [name for name in names if everything or name in self.labels or not name.startswith("final-")]


PARTS = (
    Part(
        "pruning",
        "mnist_pruning",
        3.5,
        "figures/figure5-digits-0.1-layers123.png",
        "PRUNING to 10 % of the weights: test error in %, lower is better",
        "test_error",
        True,
        {
            "final-layers123-dense": "dense (all weights)",
            "final-layers123-annealed-p2": "relaxed (annealed)",
            "final-layers123-gradual": "gradual magnitude",
            "final-layers123-hard": "hard top-k",
            "final-layers123-relaxed-p2": "relaxed (paper's lam)",
        },
        [
            ("final-layers123-annealed-p2", "final-layers123-hard"),
            ("final-layers123-relaxed-p2", "final-layers123-hard"),
            ("final-layers123-annealed-p2", "final-layers123-gradual"),
        ],
    ),
    Part(
        "losses",
        "cifar100_vit",
        4.5,
        "figures/figure6.png",
        "LOSSES of a small transformer: top-3 accuracy in %, higher is better",
        "test_accuracy/3",
        False,
        {
            "final-xent": "cross-entropy",
            "final-topk-p2": "top-3 (paper's target)",
            "final-topk-p2-smooth": "top-3 (smooth target)",
        },
        [("final-topk-p2-smooth", "final-xent"), ("final-topk-p2", "final-xent")],
    ),
    Part(
        "routers",
        "vmoe",
        10.0,
        "figures/figure7.png",
        "ROUTERS of a mixture of 8 experts: accuracy in %, higher is better",
        "test_precision_at_1",
        False,
        {"final-hard": "hard router", "final-relaxed": "relaxed router"},
        [("final-relaxed", "final-hard")],
    ),
)
CLUSTERS = Part("clusters", "vmoe_clusters", 5.0, "figures/excess.png")
