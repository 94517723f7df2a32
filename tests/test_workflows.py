"""What runs on GitHub: actions of one commit each, and no permission that is not needed."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_make_does_the_rest(path):
    found = steps(yaml.safe_load(path.read_text()))
    for step in found:
        if "uses" in step:
            _, _, commit = step["uses"].partition("@")
            assert len(commit) == 40
            assert set(commit) <= set("0123456789abcdef")
        else:
            command, target = step["run"].split()
            assert command == "make"
            assert target in TARGETS
    versions = [line for line in path.read_text().splitlines() if "uses:" in line and "# v" not in line]
    assert versions == []


def test_nothing_may_be_written_but_the_pages():
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        granted = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
        assert granted == ({"deploy": {"pages": "write", "id-token": "write"}} if path.stem == "pages" else {})
        assert all("timeout-minutes" in job for job in workflow["jobs"].values())
