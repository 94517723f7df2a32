"""The numbers that the paper states of what runs measure, in print and not in a figure."""

from experiments.mnist_pruning.report import PAPER_OT_ERROR
from scripts.compare.contents import Reported

REPORTED = (Reported("mnist_pruning", "test_error", PAPER_OT_ERROR, "hard top-k with an optimal-transport gradient"),)
