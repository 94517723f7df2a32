"""The numbers that the paper states of what runs measure, in print and not in a figure."""

from scripts.compare.contents import Reported
from scripts.mnist_pruning.table import PAPER_OT_ERROR

REPORTED = (Reported("mnist_pruning", "test_error", PAPER_OT_ERROR, "hard top-k with an optimal-transport gradient"),)
