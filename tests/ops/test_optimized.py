"""The operators' central tests again, with code as users run it: `conftest.py` has the others compile in a hurry."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What inexact arithmetic would show in first: ten digits of float64, and float32 thresholds that no float32 holds.
CENTRAL = [
    "tests/ops/test_golden.py::test_mask[1.3333333333333333]",
    "tests/ops/test_golden.py::test_debiased_magnitude[2.0]",
    "tests/ops/test_edge_cases.py::test_lam_far_below_the_resolution_of_x[2.0]",
]


def test_central_tests_hold_for_optimized_code():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CENTRAL]
    run = subprocess.run(command, cwd=ROOT, env=environment | {"XLA_FLAGS": ""}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert f"{len(CENTRAL)} passed" in run.stdout
