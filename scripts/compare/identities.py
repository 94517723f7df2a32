"""What runs are of, by the experiments that they belong to."""

from collections.abc import Sequence

from experiments.cifar100_vit import report as fine_tuning
from experiments.core.kinds import Fields, Kinds
from experiments.core.report.identity import Identity, dotted
from experiments.core.report.results import Run
from experiments.mnist_pruning.report import naming as pruning
from experiments.vmoe.report import naming as vmoe
from experiments.vmoe_clusters.report import naming as clusters

# Of runs of other programs there is nothing to know.
_OTHERS = Identity(Kinds("", {}), known={}, parts=lambda run: [], told=())


def _cross_entropy(run: Run, others: Sequence[Run]) -> Run | None:
    """The first with cross-entropy; None if that is the run itself."""
    found = next((other for other in others if other.config["loss"]["name"] == "xent"), None)
    return None if found is run else found


_FINE_TUNING = fine_tuning.PRESENTATION
_IDENTITIES = {
    "mnist_pruning": pruning.IDENTITY,
    "cifar100_vit": Identity(
        _FINE_TUNING.kinds,
        known={"loss.name": _FINE_TUNING.kinds.reads},
        types=_FINE_TUNING.types,
        parts=lambda run: [_FINE_TUNING.method(dotted(run.config)), fine_tuning.setting(run)],
        told=("loss", "optimizer.learning_rate", "optimizer.weight_decay"),
        baseline=_cross_entropy,
    ),
    "vmoe": vmoe.IDENTITY,
    "vmoe_clusters": clusters.IDENTITY,
}
EXPERIMENTS = tuple(_IDENTITIES)  # in the order of the paper, and what it does not have


def identity(run: Run) -> Identity:
    """How configs of its experiment are read."""
    return _IDENTITIES.get(run.experiment, _OTHERS)


def fields(run: Run) -> Fields:
    """The fields of its config that it reads, but its seeds."""
    return identity(run).fields(dotted(run.config))


def place(run: Run) -> tuple[int, str]:
    """Where its experiment comes among others."""
    name = run.experiment
    return (EXPERIMENTS.index(name) if name in EXPERIMENTS else len(EXPERIMENTS)), name
