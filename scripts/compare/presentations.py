"""The presentation of each experiment: how its runs are read and named."""

from experiments.cifar100_vit.report import PRESENTATION as FINE_TUNING
from experiments.core.kinds import Fields, Kinds, is_of
from experiments.core.report.presentation import EXECUTION_FIELDS, Presentation, written
from experiments.core.report.results import Run
from experiments.learned_masks.report import PRESENTATION as LEARNED_MASKS
from experiments.mnist_pruning.report import PRESENTATION as PRUNING
from experiments.sparse_attention.report import PRESENTATION as SPARSE_ATTENTION
from experiments.vmoe.report import PRESENTATION as VMOE
from experiments.vmoe_clusters.report import PRESENTATION as CLUSTERS

# In the order of the page.
PRESENTATIONS = {
    presentation.experiment: presentation
    for presentation in (PRUNING, LEARNED_MASKS, FINE_TUNING, VMOE, CLUSTERS, SPARSE_ATTENTION)
}
# Runs of other programs are taken to read every field.
_OTHER = Presentation("", Kinds("", {}), method=lambda fields: "", baseline="")


def of(experiment: str) -> Presentation:
    """Returns the presentation of an experiment; for an unknown one, one without names and baselines."""
    return PRESENTATIONS.get(experiment, _OTHER)


def read(run: Run) -> Fields:
    """Returns the fields of a config that the numbers of a run depend on, without its seeds."""
    fields = of(run.experiment).read(run.fields)
    return {name: value for name, value in fields.items() if not is_of(name, EXECUTION_FIELDS)}


def check(run: Run) -> None:
    """Raises one of `UNREADABLE` if a run cannot be shown, for example if its experiment has no such method."""
    if run.experiment in PRESENTATIONS and (reason := of(run.experiment).why_not_shown(run)):
        raise ValueError(reason)
    for name, value in read(run).items():
        written(name, value)
