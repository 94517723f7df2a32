"""Which runs are one group, and what groups are called."""

import dataclasses
import json

import fsspec
import ml_collections
import numpy as np
import pytest

from configs import mnist_pruning, vmoe_clusters
from experiments.core.config import to_json
from experiments.core.record.files import write_json
from experiments.core.record.pictures import Histogram, Pictures
from experiments.core.record.workdir import Workdir
from experiments.core.report.identity import dotted
from scripts.compare import remote
from scripts.compare.__main__ import main
from scripts.compare.contents import contents
from scripts.compare.groups import group, shown
from scripts.compare.workdirs import RESULTS, Found, find
from scripts.launch import state
from scripts.launch.training import Training
from tests.scripts.workdirs import write_fine_tuning, write_run, write_workdir

START = [90.0, 88.0]


def training_in(path):
    return Training("", "mnist_pruning", "configs/mnist_pruning.py", str(path))


def labels(directory):
    return [group.label for group in group(find([str(directory)]))]


def test_labels_give_the_fields_that_differ_and_no_others(tmp_path):
    write_workdir(tmp_path / "a", [START, [7.0, 8.0]], method="hard")
    write_workdir(tmp_path / "b", [START, [6.0, 8.0]], p=4 / 3, checkpoint_every=7)
    assert labels(tmp_path) == ["hard top-k", "relaxed top-k, p = 4/3, lam = 1e-4 (the paper's lam)"]


def test_runs_of_other_seeds_are_one_group(tmp_path):
    write_fine_tuning(tmp_path / "a0", {1: [20.0]}, seeds=(0,))
    write_fine_tuning(tmp_path / "a1", {1: [22.0]}, seeds=(1,), mesh__fsdp=4, compilation_cache="off")
    write_fine_tuning(tmp_path / "b", {1: [21.0, 23.0]}, optimizer__learning_rate=0.5)
    a, b = group(find([str(tmp_path)]))
    assert [run.name for run in a.runs] == ["a0", "a1"]
    assert a.series.seeds == [0, 1]
    assert a.run.final("test_accuracy/1") == [20.0, 22.0]
    loss = "top-3, p = 2, the paper's"
    assert a.label == f"{loss}, learning rate 5e-3, lam = 0.1"
    assert b.label == f"{loss}, learning rate 0.5, lam = 0.1"


def test_repetitions_stay_apart_and_are_told_by_name(tmp_path):
    for name in "ab":
        write_workdir(tmp_path / name, [START, [7.0, 8.0]])
    name = "relaxed top-k, p = 2, lam = 1e-4 (the paper's lam)"
    assert labels(tmp_path) == [f"{name}, [a]", f"{name}, [b]"]
    write_workdir(tmp_path / "c", [START, [7.0, 8.0]], method="hard")
    assert labels(tmp_path) == [f"{name}, [a]", f"{name}, [b]", "hard top-k"]


def test_what_a_method_does_not_read_and_how_a_run_is_carried_out_tell_no_groups_apart(tmp_path):
    write_workdir(tmp_path / "a", [START, [7.0, 8.0]], method="hard", seeds=(0, 1))
    unread = {"mask__strength": 0.7, "lam__start": 3.0, "p": 1.5, "tensorboard": True, "export_pictures": True}
    write_workdir(tmp_path / "b", [START, [6.0, 8.0]], method="hard", seeds=(2, 3), **unread)
    write_workdir(tmp_path / "c", [START, [6.0, 8.0]], method="hard", seeds=(4, 5), density=0.2)
    assert labels(tmp_path) == ["hard top-k, density=0.1", "hard top-k, density=0.2"]


# Fields that configs did not have when runs were first published.
LATER = ("budget", "density_schedule", "export_pictures", "form", "hard_after", "initialisation", "inputs")
LATER += ("lam_times_size", "mask", "network", "rigl", "str", "topkast")


@pytest.mark.parametrize("later", [(), LATER])
def test_a_rerun_of_a_committed_run_is_of_the_same_group(later):
    committed = RESULTS / "mnist_pruning" / "final-layers123-hard"
    (before,) = find([str(committed)]).runs
    config = {name: value for name, value in before.config.items() if name not in later}
    if later:
        config["optimizer"] = {name: value for name, value in config["optimizer"].items() if name != "schedule"}
        assert dotted(before.config).keys() > dotted(config).keys()
    before = dataclasses.replace(before, config=config)
    now = to_json(mnist_pruning.get_config("hard"))
    rerun = dataclasses.replace(before, name="mine", config=now | {"seeds": [98, 99]})
    rerun = dataclasses.replace(rerun, summary=before.summary | {"seeds": [98, 99]})
    series = find([str(committed)]).series[before.name]
    (found,) = group(Found([before, rerun], {before.name: series, "mine": series}, [], {before.name}))
    assert [run.name for run in found.runs] == [before.name, "mine"]
    assert found.own


def test_the_readers_own_runs_come_first_and_trials_of_sweeps_are_known(tmp_path):
    write_workdir(tmp_path / "sweep" / "lam1", [START, [7.0, 8.0]], lam__start=1.0)
    places = [str(RESULTS / "mnist_pruning" / f"final-layers123-{name}") for name in ("dense", "hard")]
    found = group(find([*places, str(tmp_path)]))
    assert [item.own for item in found] == [True, False, False]
    assert [item.trial for item in found] == [True, False, False]


def test_labels_of_many_groups_leave_out_the_usual_and_the_implied(tmp_path):
    for i, lam in enumerate((1e-4, 1e-3, 1e-2, 1e-1, 1.0)):
        write_workdir(tmp_path / f"relaxed{i}", [START, [7.0, 8.0]], lam__start=lam, lam__end=lam, batch_size=64)
    write_workdir(tmp_path / "annealed", [START, [7.0, 8.0]], lam__start=1.0, lam__schedule="geometric", p=1.5)
    assert labels(tmp_path) == [
        "relaxed top-k, p = 1.5, lam 1 to 1e-4, batch_size=128",
        "relaxed top-k, p = 2, lam = 1e-4 (the paper's lam)",
        "relaxed top-k, p = 2, lam = 1e-3",
        "relaxed top-k, p = 2, lam = 0.01",
        "relaxed top-k, p = 2, lam = 0.1",
        "relaxed top-k, p = 2, lam = 1",
    ]


def test_runs_of_the_task_of_clusters_have_the_names_of_its_tables(tmp_path):
    rows = [
        {"epoch": 0, "step": step, "seconds": 0.1 * step, "diverged": [False], "test_recovery": [0.5]}
        for step in (0, 1000)
    ]
    for name in ("best", "hard", "relaxed"):
        config = vmoe_clusters.get_config(f"router={name}")
        config.eval_every = config.steps
        config.router.limit = {"best": 3.0, "hard": 4.0, "relaxed": 5.0}[name]  # which none of them reads
        write_run(tmp_path / name, config, rows, "vmoe_clusters")
    assert labels(tmp_path) == [
        "the best assignment, learning rate 0.03",
        "hard expert choice, of the gates, learning rate 0.03",
        "relaxed expert choice, p = 2, of the logits, 50 slots, learning rate 0.03, lam = 1",
    ]


def test_unfinished_runs_are_shown_with_their_state_and_never_pooled(tmp_path):
    write_workdir(tmp_path / "done", [START, [7.0, 8.0]])
    write_workdir(tmp_path / "stopped", [START, [7.0, 8.0]], seeds=(2, 3))
    Workdir(tmp_path / "stopped").summary.unlink()
    done, stopped = group(find([str(tmp_path)]))
    assert (done.state, stopped.state) == ("done", "unfinished, at epoch 1 of 1")
    assert stopped.label.endswith("(unfinished, at epoch 1 of 1)")


def test_a_run_that_goes_on_is_called_running(tmp_path):
    write_workdir(tmp_path / "a", [START, [7.0, 8.0]])
    workdir = Workdir(tmp_path / "a")
    workdir.summary.unlink()
    config = ml_collections.ConfigDict(json.loads(workdir.config.read_text()))
    with workdir.claim(config):
        assert group(find([str(tmp_path)]))[0].state == "running, at epoch 1 of 1"
    assert group(find([str(tmp_path)]))[0].state == "stopped at epoch 1 of 1"


def test_how_a_launched_run_ended_is_shown_wherever_it_lies(tmp_path, capsys):
    memory = fsspec.filesystem("memory")
    for name in ("failed", "running", "stopped", "early"):
        write_workdir(tmp_path / name, [START, [7.0, 8.0]], method=name)
        Workdir(tmp_path / name).summary.unlink()
        (tmp_path / name / ".lock").touch()
    Workdir(tmp_path / "early").metrics.unlink()
    (tmp_path / "at once").mkdir()
    for name in ("failed", "early", "at once"):
        state.record(training_in(tmp_path / name), state.FAILED, "ValueError: no memory")
    state.record(training_in(tmp_path / "running"), state.RUNNING, submitted=True)
    state.record(training_in(tmp_path / "stopped"), state.TO_DO)
    try:
        memory.put(str(tmp_path), "/sweep/runs", recursive=True)
        here, there = find([str(tmp_path)]), find(["memory://sweep/runs"])
    finally:
        memory.store.clear()
    for found, stopped in ((here, "stopped at epoch 1 of 1"), (there, "unfinished, at epoch 1 of 1")):
        assert {run.name: (run.state, run.reason) for run in found.runs} == {
            "failed": ("failed at epoch 1 of 1", "ValueError: no memory"),
            "running": ("unfinished, at epoch 1 of 1", ""),
            "stopped": (stopped, ""),
        }
        assert {problem.name: problem.reason for problem in found.problems} == {
            "early": "metrics.jsonl is missing or empty; last error: ValueError: no memory",
            "at once": "config.json is missing; last error: ValueError: no memory",
        }
    assert main([str(tmp_path), "--format=text"]) == 0
    assert "failed: failed at epoch 1 of 1: ValueError: no memory" in capsys.readouterr().err


def test_what_cannot_be_read_is_listed_and_the_rest_is_shown(tmp_path):
    for name in ("sound", "half", "short", "garbled"):
        write_workdir(tmp_path / name, [START, [7.0, 8.0]])
    with Workdir(tmp_path / "half").metrics.open("ab") as file:
        file.truncate(file.tell() - 30)
    Workdir(tmp_path / "half").summary.unlink()
    rows = Workdir(tmp_path / "short").metrics
    rows.write_text(rows.read_text().replace('"train_density": [0.1, 0.1]', '"train_density": [0.1]'))
    Workdir(tmp_path / "short").summary.unlink()
    Workdir(tmp_path / "garbled").metrics.write_text("{\n")
    (tmp_path / "started").mkdir()
    write_json(tmp_path / "started" / "config.json", {"epochs": 3, "seeds": [0]})
    (tmp_path / "model").mkdir()
    write_json(tmp_path / "model" / "config.json", {"model_type": "vit"})
    write_json(tmp_path / "model" / "summary.json", {})
    (tmp_path / "empty").mkdir()
    found = find([str(tmp_path), str(tmp_path / "empty"), str(tmp_path / "nowhere")])
    assert [(run.name.rpartition("/")[2], run.state) for run in found.runs] == [
        ("half", "unfinished, at epoch 0 of 1"),
        ("sound", "done"),
    ]
    reasons = {problem.name.rpartition("/")[2]: problem.reason for problem in found.problems}
    assert reasons.pop("garbled").startswith("metrics.jsonl is damaged (line 1 is no row): ")
    assert reasons == {
        "short": "unreadable: ValueError: train_density has not one value per seed in every row",
        "started": "metrics.jsonl is missing or empty",
        "model": "metrics.jsonl is missing or empty",
        "empty": "holds no run",
        "nowhere": "is not a directory",
    }


@pytest.mark.parametrize("name", ["environment.json", "summary.json", "launch.json"])
@pytest.mark.parametrize("found", [[1], 7, None, {"git": [], "final": [], "steps": 10, "reason": 7}])
def test_files_of_other_programs_are_one_problem_and_the_rest_is_a_page(tmp_path, name, found):
    for run in ("foreign", "sound"):
        write_workdir(tmp_path / run, [START, [7.0, 8.0]])
    if name == "launch.json":
        Workdir(tmp_path / "foreign").summary.unlink()
    write_json(tmp_path / "foreign" / name, found)
    read = find([str(tmp_path)])
    assert [problem.name for problem in read.problems] == ["foreign"]
    data = contents(group(read), read.problems)
    assert [run["name"] for run in data["runs"]] == ["sound"]


def test_rows_of_other_programs_are_a_problem(tmp_path):
    write_workdir(tmp_path / "foreign", [START, [7.0, 8.0]])
    Workdir(tmp_path / "foreign").summary.unlink()
    rows = Workdir(tmp_path / "foreign").metrics
    rows.write_text(rows.read_text().replace('"hardened_error": [', '"nested": [1], "hardened_error": [', 1))
    rows.write_text(
        rows.read_text().replace('"hardened_error": [7', '"nested": {"a": [1, 2]}, "hardened_error": [7', 1)
    )
    assert [problem.name for problem in find([str(tmp_path)]).problems] == ["foreign"]


def test_places_are_told_apart_and_read_once(tmp_path, monkeypatch):
    for name in ("a/run", "b/run"):
        write_workdir(tmp_path / name, [START, [7.0, 8.0]], method="hard" if name < "b" else "dense")
    places = [str(tmp_path / "a"), str(tmp_path / "b"), f"{tmp_path}/a/"]
    found = find(places)
    assert [run.name for run in found.runs] == [f"{tmp_path}/a/run", f"{tmp_path}/b/run"]
    assert find([str(tmp_path / "a" / "run")]).runs[0].name == "run"
    monkeypatch.chdir(tmp_path / "a" / "run")
    assert find(["."]).runs[0].name == "run"


def test_runs_in_a_bucket_are_copied_and_read(tmp_path, capsys):
    pictures = Pictures(histograms={"kernel": Histogram.of(np.arange(3.0))})
    write_workdir(tmp_path / "run", [START, [7.0, 8.0]], pictures=pictures)
    (tmp_path / "run" / "params.npz").write_bytes(b"large")
    memory = fsspec.filesystem("memory")
    try:
        memory.put(str(tmp_path), "/bucket/runs", recursive=True)
        found = find(["memory://bucket/runs"])
        assert [run.name for run in found.runs] == ["run"]
        assert found.problems == []
        assert [run.name for run in find(["memory://bucket/runs/run/"]).runs] == ["run"]
        assert found.runs[0].pictures.histograms.keys() == {"kernel"}
        assert "copying 5 files" in capsys.readouterr().err
        assert [problem.reason for problem in find(["memory://bucket/none"]).problems] == ["holds no run"]
    finally:
        memory.store.clear()
    (problem,) = find(["nosuch://bucket"]).problems
    assert problem.reason.startswith("cannot be read: ")


def test_a_storage_that_remembers_its_directories_is_asked_anew():
    class Remembering(fsspec.get_filesystem_class("memory")):
        protocol, known = "remembering", {}

        def find(self, path, **options):
            return self.known.setdefault(path, super().find(path, **options))

        def invalidate_cache(self, path=None):
            self.known.clear()

    fsspec.register_implementation("remembering", Remembering)
    filesystem, root = fsspec.core.url_to_fs("remembering://runs")
    try:
        assert remote.stamps("remembering://runs") == {}
        filesystem.pipe(f"{root}/a/metrics.jsonl", b"1")
        before = remote.stamps("remembering://runs")
        filesystem.pipe(f"{root}/a/metrics.jsonl", b"12")
        assert [size for size, _ in before.values()] == [1]
        assert [size for size, _ in remote.stamps("remembering://runs").values()] == [2]
    finally:
        filesystem.store.clear()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("p", 4 / 3, "4/3"),
        ("lam", 1e-4, "1e-4"),
        ("steps", 100, "100"),
        ("x", -0.5, "-0.5"),
        ("debias", True, "yes"),
        ("data_dir", None, "-"),
        ("hidden", [32, 32], "(32, 32)"),
        ("name", "topk", "topk"),
    ],
)
def test_values_as_people_write_them(name, value, text):
    assert shown(name, value) == text
