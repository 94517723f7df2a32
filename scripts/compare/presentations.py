"""How runs are read and named, by the experiments that they belong to."""

from collections import Counter
from collections.abc import Sequence

from experiments.cifar100_vit.report import PRESENTATION as FINE_TUNING
from experiments.core.kinds import Fields, Kinds, is_of
from experiments.core.report.presentation import HOW, Presentation, written
from experiments.core.report.results import Run
from experiments.mnist_pruning.report import PRESENTATION as PRUNING
from experiments.vmoe.report import PRESENTATION as VMOE
from experiments.vmoe_clusters.report import PRESENTATION as CLUSTERS

PRESENTATIONS = {one.experiment: one for one in (PRUNING, FINE_TUNING, VMOE, CLUSTERS)}  # in the order of the page
# Nothing is known of runs of other programs: they read every field.
_OTHER = Presentation("", "", Kinds("", {}), method=lambda fields: "", look=lambda fields: ("", ""), baseline="")
METHOD, NAME = "(method)", "(name)"  # parts of labels that are no fields


def of(experiment: str) -> Presentation:
    """The presentation of an experiment, or one that knows nothing."""
    return PRESENTATIONS.get(experiment, _OTHER)


def read(run: Run) -> Fields:
    """The fields of its config that the numbers of a run depend on, without its seeds."""
    fields = of(run.experiment).read(run.fields)
    return {name: value for name, value in fields.items() if not is_of(name, HOW)}


def check(run: Run) -> None:
    """Raises one of `UNREADABLE` if a run cannot be shown: its experiment does not know its method, or the like."""
    if run.experiment in PRESENTATIONS and (reason := of(run.experiment).odd(run)):
        raise ValueError(reason)
    for name, value in read(run).items():
        written(name, value)


def labels(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The parts of the label of each run of one experiment: its method, and the fields that differ, by their names.

    Runs of other programs have their names in the place of a method, and so have runs that differ in nothing besides.
    """
    its = of(runs[0].experiment)
    heads = [run.name if its is _OTHER else its.method(run.fields) for run in runs]
    parts = [{METHOD: head, **more} for head, more in zip(heads, its.parts(runs), strict=True)]
    count = Counter(", ".join(its.values()) for its in parts)
    for run, its_parts in zip(runs, parts, strict=True):
        if count[", ".join(its_parts.values())] > 1:
            its_parts[NAME] = f"[{run.name}]"
    return parts


def references(runs: Sequence[Run]) -> list[Run | None]:
    """The run that each run of one experiment is compared with: the baseline in the same circumstances."""
    its = of(runs[0].experiment)
    return [None] * len(runs) if its is _OTHER else list(its.references(runs).values())
