"""What runs on GitHub: actions of one commit each, targets that there are, and no permission that is not needed."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflow_is_pinned_and_restricted(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        allowed = {"pages": "write", "id-token": "write"} if (path.stem, name) == ("pages", "deploy") else None
        assert job.get("permissions") == allowed
        assert "timeout-minutes" in job
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
            else:
                assert step["run"].removeprefix("make ") in TARGETS
