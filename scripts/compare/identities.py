"""What runs are of, by the experiments that they belong to."""

from collections.abc import Sequence

from experiments.cifar100_vit.report import naming as fine_tuning
from experiments.core.kinds import Fields, Kinds
from experiments.core.report.identity import Identity, dotted
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.core.report.runs import frame
from experiments.mnist_pruning.report import naming as pruning
from experiments.vmoe import report as vmoe
from experiments.vmoe_clusters import report as clusters


def _of(presentation: Presentation) -> Identity:
    """For as long as this page reads identities."""

    def baseline(run: Run, others: Sequence[Run]) -> Run | None:
        found = frame([run, *(other for other in others if other.name != run.name)])
        return presentation.references(found).iloc[0]

    tuned = ("optimizer.learning_rate", "router.lam", "router.hard_after", "router.limit")
    return Identity(
        kinds=presentation.kinds,
        known={presentation.kinds.field: presentation.kinds.reads},
        parts=lambda run: [presentation.method(dotted(run.config))],
        told=("router.name", "router.score", "router.p", "router.dykstra", "router.capacity", *tuned),
        baseline=baseline,
        types=presentation.types,
    )


# Of runs of other programs there is nothing to know.
_OTHERS = Identity(Kinds("", {}), known={}, parts=lambda run: [], told=())
_IDENTITIES = {
    "mnist_pruning": pruning.IDENTITY,
    "cifar100_vit": fine_tuning.IDENTITY,
    "vmoe": _of(vmoe.PRESENTATION),
    "vmoe_clusters": _of(clusters.PRESENTATION),
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
