"""Isotonic optimisation: the paper's reduction of its operators for general weights, and three solvers for it."""

from .regression import isotonic_regression, isotonic_solution
from .solvers import PAV, Dual, Dykstra, Solution
from .topk import topk_solution

__all__ = ["PAV", "Dual", "Dykstra", "Solution", "isotonic_regression", "isotonic_solution", "topk_solution"]


def __dir__() -> list[str]:
    """Returns the public names; other modules are implementation."""
    return list(__all__)
