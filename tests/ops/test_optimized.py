"""The operators' central tests again, with code as users run it: `conftest.py` has the others compile in a hurry."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CENTRAL = ["tests/ops/test_golden.py", "tests/ops/test_edge_cases.py"]


def test_central_tests_hold_for_optimized_code():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CENTRAL]
    run = subprocess.run(command, cwd=ROOT, env=environment | {"XLA_FLAGS": ""}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "passed" in run.stdout
