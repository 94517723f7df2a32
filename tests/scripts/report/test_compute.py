"""What was trained, counted from archives with known numbers."""

import json

from scripts.report import compute


def test_runs_networks_and_hours_are_counted(tmp_path):
    for place, platform, seeds, seconds in (("a", "cpu", 2, 3600), ("a/sweep", "cpu", 1, 1800), ("b", "gpu", 10, 720)):
        record = {
            "environment": {"devices": {"platform": platform}},
            "summary": {"seeds": [*range(seeds)], "seconds": seconds},
        }
        (tmp_path / place).mkdir()
        (tmp_path / place / "runs.jsonl").write_text(json.dumps(record) + "\n")
    (lines,) = compute.blocks(tmp_path).values()
    rows = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in lines[2:]}
    assert rows == {"a": ["2", "3", "1.5", "0.0"], "b": ["1", "10", "0.0", "0.2"], "all": ["3", "13", "1.5", "0.2"]}
