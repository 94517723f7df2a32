"""The command: its page, its table, and what it says when there is nothing to show."""

import json
import re

import pytest

from experiments.core.record.workdir import Workdir
from experiments.core.report.frame import difference
from experiments.core.report.results import load
from scripts.compare import contents as contents_lib
from scripts.compare.__main__ import main
from scripts.compare.contents import contents
from scripts.compare.groups import group
from scripts.compare.workdirs import find
from tests.scripts.workdirs import write_workdir

START = [90.0, 88.0, 89.0]


@pytest.fixture
def runs(tmp_path):
    """A pruning run, one to compare with that is not the first, one that stopped, and something else."""
    directory = tmp_path / "runs"
    write_workdir(directory / "hard", [START, [9.0, 8.0, 7.5], [7.0, 8.0, 6.0]], method="hard")
    write_workdir(directory / "annealed", [START, [9.0, 6.0, 8.0], [5.0, 6.5, 5.0]], lam__start=0.1)
    write_workdir(directory / "stopped", [START, [9.0, None, 8.0], [1.0, None, 1.0]], lam__start=1.0)
    stopped = Workdir(directory / "stopped")
    stopped.summary.unlink()
    rows = stopped.metrics.read_text().splitlines(keepends=True)
    stopped.metrics.write_text("".join(rows[:2]) + rows[2][:40])  # killed while writing the last row
    (directory / "broken").mkdir()
    (directory / "broken" / "metrics.jsonl").write_text("")
    return directory


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def rows_of(capsys):
    """The cells of the table, by label."""
    lines = capsys.readouterr().out.splitlines()
    return {
        cells[0]: cells[1:] for cells in (re.split(r"\s{2,}", line) for line in lines if "±" in line and "  " in line)
    }


def test_page_holds_curves_and_problems(runs, tmp_path, capsys):
    pages = [tmp_path / name for name in ("once", "twice")]
    for out in pages:
        assert main([str(runs), f"--out={out}"]) == 0
    assert "left out: broken: config.json is missing" in capsys.readouterr().err
    assert (pages[0] / "index.html").read_bytes() == (pages[1] / "index.html").read_bytes()
    data = data_of((pages[0] / "index.html").read_text())
    groups = {one["about"]["run"]: one for one in data["groups"]}
    hard, relaxed, stopped = (groups[name] for name in ("hard", "annealed", "stopped"))
    assert hard["x"] == {"step": [0, 10, 20], "epoch": [0, 1, 2], "seconds": [0, 2, 4]}
    assert hard["curves"]["test_error"]["mean"] == [89, 8.1667, 7]
    assert relaxed["final"]["test_error"] == [5, 6.5, 5]
    assert relaxed["baseline"] == hard["id"]
    assert (relaxed["config"]["lam.start"], "lam.start" in hard["config"]) == ("0.1", False)
    assert stopped["state"] == "unfinished, at epoch 1 of 2"
    assert stopped["diverged"] == 1
    assert data["problems"] == [{"name": "broken", "reason": "config.json is missing"}]


def test_names_cannot_inject_markup(tmp_path):
    """Checks, too, that the page requests nothing from elsewhere."""
    name = "</script><img src=x onerror=alert(1)>"
    write_workdir(tmp_path / "runs" / name.replace("/", ""), [START, [7.0, 8.0, 6.0]])
    write_workdir(tmp_path / "runs" / "other", [START, [7.0, 8.0, 6.0]], dataset=name)
    assert main([str(tmp_path / "runs"), f"--out={tmp_path / 'out'}"]) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "onerror=alert(1)>" in page
    assert "<img src=x" not in page
    assert name in [one["config"].get("dataset") for one in data_of(page)["groups"]]
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    assert f'Content-Security-Policy" content="{policy}"' in page
    assert re.findall(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="(?!data:)', page) == []


def test_text_table_has_paired_differences(runs, capsys):
    (relaxed, hard), _ = load(runs)
    minus = difference(relaxed, hard, "test_error")
    for reference in ([], ["--reference=hard"]):  # the baseline of the experiment by itself
        assert main([str(runs), "--format=text", *reference]) == 0
        rows = rows_of(capsys)
        assert rows["hard top-k"] == ["3", "0", "7.00 ± 2.48", "-", "-", "done"]
        expected = f"{minus['mean']:+.2f} ± {minus['interval95']:.2f}"
        assert rows["relaxed top-k, lam = 0.1, p = 2"][3:] == [expected, "hard", "done"]
        stopped = next(cells for label, cells in rows.items() if "unfinished" in label)
        assert stopped[1:4] == ["1", "8.50 ± 6.35", "-"]


def test_missing_baseline_suggests_reference(runs, capsys):
    write_workdir(runs / "shorter batches", [START, [7.0, 8.0, 6.0]], batch_size=32)
    for reference, told in (([], True), (["--reference=hard"], False)):
        main([str(runs), "--format=text", *reference])
        assert ("--reference=" in capsys.readouterr().out) == told


def test_missing_runs_are_named_in_one_line(runs, tmp_path, capsys):
    for reference, part in {"nobody": "hard top-k; ", "stopped": "(unfinished, at epoch 1 of 2)"}.items():
        assert main([str(runs), "--format=text", f"--reference={reference}"]) == 2
        (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
        assert f"--reference={reference}" in line
        assert part in line
    assert main([str(tmp_path / "none"), f"--out={tmp_path / 'out'}"]) == 1
    assert "there is no run to compare" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_long_runs_keep_their_spikes(tmp_path, monkeypatch):
    monkeypatch.setattr(contents_lib, "BUDGET", 3 * 5 * 6 * 50)
    for number in range(3):
        errors = [[50.0 - i / 10, 51.0 - i / 10] for i in range(400)]
        errors[100 + number] = [77.0, 77.0]
        write_workdir(tmp_path / str(number), errors, lam__start=1.0 + number)
    for one in contents(group(find([str(tmp_path)])), [])["groups"]:
        curve = one["curves"]["test_error"]
        assert max(curve["mean"]) == 77
        assert len(curve["mean"]) <= 50
        rows = curve.get("rows", range(50))
        assert one["x"]["epoch"][rows[curve["mean"].index(77)]] == 100 + int(one["about"]["run"])
