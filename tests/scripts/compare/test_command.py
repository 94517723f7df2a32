"""The command: its page, its plots, its table, and what it says when there is nothing to show."""

import json
import re

import pytest

from configs import mnist_pruning
from experiments.core.record.workdir import Workdir
from experiments.core.report.paired import difference, significance
from experiments.core.report.results import load
from scripts.bench import pages
from scripts.compare import contents as contents_lib
from scripts.compare import plots
from scripts.compare.__main__ import main
from scripts.compare.comparison import comparison
from scripts.compare.contents import contents
from scripts.compare.groups import group
from scripts.compare.workdirs import find
from tests.scripts.workdirs import write_fine_tuning, write_run, write_workdir

START = [90.0, 88.0, 89.0]


@pytest.fixture
def runs(tmp_path):
    """A pruning run, one to compare with, one that stopped, and something else."""
    directory = tmp_path / "runs"
    write_workdir(directory / "hard", [START, [9.0, 8.0, 7.5], [7.0, 8.0, 6.0]], method="hard")
    write_workdir(directory / "relaxed", [START, [9.0, 6.0, 8.0], [5.0, 6.5, 5.0]], lam__start=0.1)
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


def test_the_page_holds_curves_finals_configs_and_problems(runs, tmp_path, capsys):
    assert main([str(runs), f"--out={tmp_path / 'out'}", "--no_figures"]) == 0
    said = capsys.readouterr()
    assert f"3 runs in 3 groups: {tmp_path}/out/index.html" in said.out
    assert "left out: broken: config.json is missing" in said.err
    data = data_of((tmp_path / "out" / "index.html").read_text())
    hard, relaxed, stopped = data["groups"]
    assert hard["x"] == {"step": [0, 10, 20], "epoch": [0, 1, 2], "seconds": [0, 2, 4]}
    assert hard["curves"]["test_error"]["mean"] == [89, 8.1667, 7]
    assert relaxed["final"]["test_error"] == [5, 6.5, 5]
    assert data["fields"]["lam.start"] == ["-", "0.1", "1"]
    assert data["common"]["optimizer.learning_rate"] == "0.01"
    assert stopped["state"] == "unfinished, at epoch 1 of 2"
    assert stopped["diverged"] == 1
    assert data["problems"] == [{"name": "broken", "reason": "config.json is missing"}]
    assert data["points"] == {"drawn": 3 * 5 + 3 * 5 + 2 * 5, "total": 40}


def test_plots_are_files_and_everything_is_the_same_bytes_again(tmp_path):
    for lam in (0.1, 1.0):
        config = mnist_pruning.get_config()
        config.lam.start = lam
        config.update(epochs=1, seeds=(0, 1))
        rows = [
            {"epoch": i, "step": i, "seconds": i, "diverged": [False, False], "test_error": [9 - i * lam, 8 - i]}
            for i in (0, 1)
        ]
        write_run(tmp_path / "runs" / str(lam), config, rows, "mnist_pruning")
    written = []
    (tmp_path / "b" / "plots").mkdir(parents=True)
    (tmp_path / "b" / "plots" / "scatter-p.svg").touch()  # of an earlier comparison
    for name in ("a", "b"):
        assert main([str(tmp_path / "runs"), f"--out={tmp_path / name}"]) == 0
        written.append({path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")})
    assert written[0] == written[1]
    plots = {f"{name}.{suffix}" for name in ("curves-test_error", "scatter-lam.start") for suffix in ("png", "svg")}
    assert written[0].keys() == plots | {"index.html"}
    assert set(re.findall(r'href="plots/([^"]*)"', written[0]["index.html"].decode())) == plots


def test_of_what_is_beside_the_plots_only_earlier_plots_are_removed(tmp_path):
    others = {"curves-notes.txt", "mine.png", "curves"}
    for name in (*others, "curves-test_error.png", "scatter-lam.start.svg"):
        (tmp_path / name).touch()
    assert plots.make([], tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == others
    assert plots.make([], tmp_path / "nowhere") == []


def test_names_cannot_end_the_data_or_become_markup(tmp_path):
    name = "</script><img src=x onerror=alert(1)>"
    write_workdir(tmp_path / "runs" / name.replace("/", ""), [START, [7.0, 8.0, 6.0]])
    write_workdir(tmp_path / "runs" / "other", [START, [7.0, 8.0, 6.0]], data_dir=name)
    assert main([str(tmp_path / "runs"), f"--out={tmp_path / 'out'}", "--no_figures"]) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "onerror=alert(1)>" in page
    assert "<img src=x" not in page
    assert data_of(page)["fields"]["data_dir"][1] == name


def test_a_page_asks_for_nothing_and_one_that_is_served_asks_its_server_alone(runs):
    found = find([str(runs)])
    still, served = (comparison(found, group(found), followed=followed) for followed in (None, {"version": "1"}))
    policy = "Content-Security-Policy\" content=\"default-src 'none';"
    assert f"{policy} script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\"" in still
    assert f"{policy} connect-src 'self'; script-src" in served
    assert re.findall(r'<(?:script|link|img|iframe)[^>]* (?:src|href)="(?!data:)', still) == []


def test_the_text_table_has_paired_differences_and_their_significance(runs, capsys):
    assert main([str(runs), "--format=text", "--reference=hard"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (hard, relaxed), _ = load(runs)
    p = significance(relaxed, hard, "test_error")
    cells = {line.split("  ")[0]: re.split(r"\s{2,}", line) for line in lines}
    assert cells["hard top-k"][1:] == ["3", "0", "7.00 ± 2.48", "reference", "-", "done"]
    minus = difference(relaxed, hard, "test_error")
    assert cells["relaxed top-k, p = 2, lam = 0.1"][4] == f"{minus['mean']:.2f} ± {minus['interval95']:.2f}"
    assert cells["relaxed top-k, p = 2, lam = 0.1"][5] == f"{p:.2g}"
    stopped = next(line for line in lines if "unfinished" in line)
    assert re.split(r"\s{2,}", stopped)[2:6] == ["1", "8.50 ± 6.35", "-", "-"]


def test_differences_are_to_the_baseline_of_the_same_density(tmp_path, capsys):
    """Not to the first row, nor to the baseline of another density."""
    for name, fields in {
        "a": {"method": "hard", "density": 0.05, "lam__start": 1.0},
        "b": {"lam__start": 0.1},
        "c": {"lam__start": 1.0},
        "d": {"method": "hard"},
    }.items():
        write_workdir(tmp_path / name, [START, [7.0, 8.0, 6.0]], **{"density": 0.1} | fields)
        Workdir(tmp_path / name).environment.write_text(json.dumps({"experiment": "mnist_pruning", "resumed": []}))
    (tmp_path / "a").rename(tmp_path / "0")
    assert main([str(tmp_path), "--format=text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.split(r"\s{2,}", line)[0] for line in lines if "  reference  " in line] == ["hard top-k, density=0.1"]
    found = contents(group(find([str(tmp_path)])), [])["groups"]
    ids = {item["runs"][0]: item["id"] for item in found}
    assert {item["runs"][0]: item["baseline"] for item in found} == {"0": None, "b": ids["d"], "c": ids["d"], "d": None}


def test_a_reference_is_called_exactly_so_before_it_is_in_part(runs, capsys):
    """Two labels begin with the name of this run."""
    assert main([str(runs), "--format=text", "--reference=relaxed"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "reference  " in line and "±" in line)
    assert row.startswith("relaxed top-k, p = 2, lam = 0.1 ")


def test_a_reference_without_the_metric_is_said_to_have_none(runs, capsys):
    write_fine_tuning(runs / "fine", {1: [20.0, 21.0]})
    assert main([str(runs), "--format=text", "--metric=test_accuracy/1", "--reference=hard"]) == 2
    err = capsys.readouterr().err
    assert "error: --reference=hard is " in err
    assert err.endswith(", which has no test_accuracy/1\n")


def test_page_and_table_agree_on_runs_that_have_come_to_different_steps(tmp_path, capsys):
    for seed, errors in enumerate(([90.0, 9.0, 7.0, 7.0], [90.0, 8.0, 8.0, 8.0])):
        write_workdir(tmp_path / str(seed), [[error] for error in errors], seeds=(seed,))
        workdir = Workdir(tmp_path / str(seed))
        workdir.summary.unlink()
        rows = workdir.metrics.read_text().splitlines(keepends=True)
        workdir.metrics.write_text("".join(rows[: 3 - seed]))
    (found,) = contents(group(find([str(tmp_path)])), [])["groups"]
    assert found["final"]["test_error"] == [7, 8]
    assert main([str(tmp_path), "--format=text"]) == 0
    assert "7.50 ± 6.35" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric=nothing"], "error: --metric=nothing is not one of test_error, "),
        (["--reference=nobody"], "error: --reference=nobody is part of no label or name of a run"),
        (
            ["--reference=top-k"],
            "error: --reference=top-k is part of several labels or names, and must be of one: hard top-k; "
            "relaxed top-k, p = 2, lam = 0.1; relaxed top-k, p = 2, lam = 1, ",
        ),
        (
            ["--reference=stopped"],
            "error: --reference=stopped is relaxed top-k, p = 2, lam = 1, (unfinished, at epoch 1 of 2), from which",
        ),
    ],
)
def test_what_is_not_there_is_said_in_one_line(runs, capsys, arguments, message):
    assert main([str(runs), "--format=text", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_any_run_there_is_no_page(tmp_path, capsys):
    assert main([str(tmp_path), f"--out={tmp_path / 'out'}"]) == 1
    assert "there is no run to compare" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_runs_of_two_experiments_are_told_apart(tmp_path):
    for name in ("mnist_pruning", "cifar100_vit"):
        command = {"experiment": name, "command": ["python", "-m", f"experiments.{name}.suite"], "resumed": [{}, {}]}
        for i in range(2):
            path = tmp_path / name / str(i)
            if name == "mnist_pruning":
                write_workdir(path, [START, [7.0, 8.0, 6.0]], p=2.0 - i / 2)
            else:
                write_fine_tuning(path, {1: [20.0], 10: [40.0], 2: [30.0]}, optimizer__learning_rate=0.1 + i)
            Workdir(path).environment.write_text(json.dumps(command))
    groups = group(find([str(tmp_path)]))
    assert [item.label for item in groups] == [
        "mnist_pruning, relaxed top-k, p = 2, lam = 1e-4 (the paper's lam)",
        "mnist_pruning, relaxed top-k, p = 1.5, lam = 1e-4 (the paper's lam)",
        "cifar100_vit, top-3, p = 2, the paper's, learning rate 0.1, lam = 0.1",
        "cifar100_vit, top-3, p = 2, the paper's, learning rate 1.1, lam = 0.1",
    ]
    data = contents(groups, [])
    names = [metric["name"] for metric in data["metrics"] if "accuracy" in metric["name"]]
    assert names == ["test_accuracy/1", "test_accuracy/2", "test_accuracy/10"]
    assert {metric["name"] for metric in data["metrics"] if not metric["per_seed"]} == {
        *("learning_rate", "performance/mfu", "performance/step_seconds")
    }
    assert data["runs"][0]["resumed"] == 2


def test_the_benchmark_of_pages_records_how_long_they_take_and_how_large_they_are(tmp_path):
    assert pages.main(["--runs=3", "--rows=50", f"--results={tmp_path}"]) == 0
    (path,) = tmp_path.iterdir()
    (found,) = json.loads(path.read_text())["pages"]["pages"]
    assert (found["runs"], found["rows"], found["groups"]) == (3, 50, 3)
    assert 4 < found["megabytes"] < 6  # nearly all of it is Plotly
    assert found["read_seconds"] + found["page_seconds"] > 0


def test_many_long_runs_make_a_page_that_shows_their_spikes(tmp_path, monkeypatch):
    monkeypatch.setattr(contents_lib, "_MOST", 300)
    for number in range(12):
        pages.write_run(tmp_path / str(number), number, 600)
    groups = group(find([str(tmp_path)]))
    data = contents(groups, [])
    assert data["points"]["drawn"] < data["points"]["total"] == 12 * 600 * 5
    for item in data["groups"]:
        curve = item["curves"]["test_error"]
        assert sum(abs(value - pages.SPIKE) < 5 for value in curve["mean"][3:]) >= 1
        assert len(curve["averages"]["mean"]) > 100
    assert len(json.dumps(data)) < 1e6
