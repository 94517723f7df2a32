"""The demo: its verdicts from numbers made up, and the command with suites that a shell script pretends to be."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib

import pytest

from experiments.core.record.summary import interval
from experiments.core.report.results import Run
from experiments.core.suite.plan import find
from scripts.demo import training
from scripts.demo.__main__ import main
from scripts.demo.parts import CLUSTERS, PARTS, PRESET, Part
from scripts.demo.summary import conclusion, verdict
from tests.experiments.support import ROOT
from tests.scripts.workdirs import write_fine_tuning, write_vmoe, write_workdir

PRUNING, LOSSES, ROUTERS = PARTS


def run(metric, values):
    final = interval(values)
    for name in reversed(metric.split("/")):
        final = {name: final}
    return Run("a run", {}, [], {"seeds": list(range(len(values))), "final": final})


@pytest.mark.parametrize(
    ("first", "second", "lower", "said"),
    [
        ([4.0, 5.0, 6.0], [14.0, 15.0, 16.5], True, "A is better than B by 10.2 ± 0.7 points"),
        ([4.0, 5.0, 6.0], [14.0, 15.0, 16.5], False, "A is worse than B by 10.2 ± 0.7 points"),
        ([90.0, None, 91.0], [50.0, 60.0, 51.5], False, "A is better than B by 39.8 ± 3.2 points"),
        ([4.0, 30.0, 6.0], [14.0, 15.0, 16.0], True, "no clear difference. Noise: A against B (-1.7 ± 35.9)"),
        ([4.0, None, None], [14.0, 15.0, 16.0], True, "no clear difference. Noise: A against B (fewer than two seeds)"),
    ],
)
def test_verdict_follows_paired_interval(first, second, lower, said):
    part = Part("x", "x", 1.0, "", "X", "m", lower, {"a": "A", "b": "B"}, [("a", "b")])
    runs = {"a": run("m", first), "b": run("m", second)}
    assert verdict(part, runs) == f"Take from it: {said}."
    answer = "no difference" if "no clear" in said else "is better" if "better" in said else "is worse"
    assert answer in conclusion(part, runs)


@pytest.mark.parametrize("part", [*PARTS, CLUSTERS], ids=lambda part: part.title)
def test_the_runs_are_those_of_the_preset(part):
    preset = [run.name for run in find(part.package).presets[PRESET]()]
    assert part.runs(True) == preset
    assert set(part.runs(False)) >= set(part.labels)
    assert all(name in part.labels for question in part.questions for name in question)


def test_demo_imports_only_its_packages():
    """None of those that only other lines of requirements.txt bring."""
    others = {"tensorflow_datasets", "array_record", "grain", "gcsfs", "clu", "importlib_resources", "pytest"}
    modules = [f"{part.package[: -len('suite')]}{name}" for part in PARTS for name in ("suite", "experiment", "report")]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({others}))
import scripts.demo.__main__, {", ".join(modules)}
from experiments.core.input import sources
print(len(sources.digits().train))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1438\n"), done.stderr


def test_demo_packages_are_in_requirements():
    some = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["demo"]
    names = re.findall(r"^[\w-]+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert set(some) < set(names)


@pytest.fixture
def demo(tmp_path, monkeypatch, capfd):
    """Runs the command, with suites that do what a line of shell does; returns status, output and errors."""

    def run_demo(does, *options):
        pretender = tmp_path / "python"
        pretender.write_text(f"#!/bin/bash\n{does}\n")
        pretender.chmod(0o755)
        monkeypatch.setattr(training.sys, "executable", str(pretender))
        return main([f"--out={tmp_path / 'out'}", *options]), *capfd.readouterr()

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield run_demo
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_done_runs_give_summary_and_page(demo, tmp_path):
    out = tmp_path / "out"
    for part in PARTS:
        (out / part.experiment / part.figure).parent.mkdir(parents=True)
        (out / part.experiment / part.figure).write_bytes(b"a picture")
        (out / part.experiment / "table.md").write_text("### A table\n\n| a | b |\n| --- | ---: |\n| x | 2 |\n")
    for name in PRUNING.labels:
        write_workdir(out / "mnist_pruning" / name, [[90.0, 88.0, 91.0], [9.0, 8.0, 7.0]], method="hard")
    for name in LOSSES.runs(False):
        write_fine_tuning(out / "cifar100_vit" / name, {1: [80.0, 81.0, 83.0], 3: [90.0, 91.0, 93.0]})
    for name in ROUTERS.labels:
        write_vmoe(out / "vmoe" / name, [[10.0, 11.0, 12.0], [80.0, 81.0, 83.0]])
    status, said, errors = demo(f"echo suite $* | tee --append {tmp_path}/asked")
    assert (status, errors) == (0, "")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [re.findall(r"-m (\S+)", line) for line in asked] == [[part.package] for part in PARTS]
    assert "suite" not in said  # it is in the log
    lines = said.splitlines()
    assert "pruning 5/5, losses 4/4, routers 2/2" in lines[0]
    assert len(lines) <= 50
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert str(out / "index.html") in said
    page = (out / "index.html").read_text().partition("<script")[0]
    assert page.count('<img src="data:image/png;base64,') == 3
    assert all(answer in page and answer in said for answer in ("Pruning: ", "Losses: ", "Routers: "))
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_failed_suite_ends_the_demo(demo, tmp_path):
    does = "echo '[1/5] final-x  FAILED: no luck'; seq 20; echo 'error: 1 failed'; exit 3"
    status, _, errors = demo(does)
    assert status == 3
    first, *others, last = errors.splitlines()
    assert first.endswith("FAILED: no luck")
    assert others[0] == "12"
    assert others[-1] == "error: 1 failed"
    assert str(tmp_path / "out" / "log.txt") in last
    assert demo("true")[0] == 1  # without its runs


@pytest.mark.usefixtures("signals_count")
def test_signal_stops_the_suite_once(demo, tmp_path):
    told = tmp_path / "told"

    def send():
        while not told.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    does = f"trap 'echo stop >> {told}; exit 0' TERM; touch {told}; for _ in $(seq 600); do sleep 0.1; done"
    status, said, errors = demo(does)
    assert (status, errors) == (0, "")
    assert said.splitlines()[-1] == "stopped; run it again and it resumes"
    assert told.read_text() == "stop\n"
