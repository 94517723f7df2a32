"""What runs are of, by the experiments that they belong to."""

from experiments.cifar100_vit.report import naming as fine_tuning
from experiments.core.kinds import Fields, Kinds
from experiments.core.report.identity import Identity, dotted
from experiments.core.report.results import Run
from experiments.mnist_pruning import presentation as pruning
from experiments.vmoe.report import naming as vmoe
from experiments.vmoe_clusters.report import naming as clusters

# Of runs of other programs there is nothing to know.
_OTHERS = Identity(Kinds("", {}), known={}, parts=lambda run: [], told=())
_IDENTITIES = {
    "mnist_pruning": Identity(
        kinds=pruning.KINDS,
        known={"method": pruning.METHODS},
        parts=lambda run: [pruning.method_of(dotted(run.config))],
        told=("method", "optimizer", "density_schedule"),
    ),
    "cifar100_vit": fine_tuning.IDENTITY,
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
