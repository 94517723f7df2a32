"""What papers report for LeNet-300-100, beside which our runs of that network stand."""

from typing import NamedTuple

LENET = "mnist-300-100"  # its task, as `runs.task` names it


class Published(NamedTuple):
    """A number of a paper: a single network, with settings that its authors chose."""

    method: str
    kept: float  # the share of the weights that are not 0, in %
    error: float  # on test, in %


# As Molchanov, Ashukha and Vetrov (2017, "Variational Dropout Sparsifies Deep Neural Networks") compare them.
PUBLISHED = (
    Published("dense", 100.0, 1.64),
    Published("pruning and training again (Han et al. 2015)", 8.0, 1.59),
    Published("soft weight sharing (Ullrich et al. 2017)", 4.3, 1.94),
    Published("dynamic network surgery (Guo et al. 2016)", 1.8, 1.99),
    Published("sparse variational dropout (Molchanov et al. 2017)", 1.5, 1.92),
)
