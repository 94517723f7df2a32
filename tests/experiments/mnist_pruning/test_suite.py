"""The suite runner: choosing, resuming, failing, stopping."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.core.config import to_json
from experiments.core.errors import UsageError
from experiments.core.record.files import write_json
from experiments.core.suite import command, runner, worker
from experiments.core.suite.choice import choose
from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning.suite.__main__ import SUITE
from tests.scripts.workdirs import write_workdir

# The dense network compiles fastest; the learning rate is as good a thing to choose as any.
BASE = {
    "dataset": "digits",
    "seeds": (0, 1),
    "epochs": 1,
    "method": "dense",
    "hidden": (),
    "prune_layers": (1,),
}
VALIDATION = BASE | {"split": "validation", "validation_size": 300}
SWEEP = [
    SuiteRun(f"sweep/rate{rate:g}", VALIDATION, {"optimizer.learning_rate": rate}, candidate_for="rate")
    for rate in (1e-3, 1e-2, 1e-1)
]
FINAL = [SuiteRun("final-default", BASE), SuiteRun("final-chosen", BASE, best_of="rate")]
GIVEN = {"chosen": "other", "setting": {"optimizer.learning_rate": 0.05}, "missing": [], "candidates": []}


def made(out: Path, run: SuiteRun, errors: list[float | None], hardened: list[float | None], **earlier: float) -> None:
    """Writes a finished run of `SUITE`, which had the setting of an `earlier` choice (`__` for the dots)."""
    shutil.rmtree(out / run.name, ignore_errors=True)
    setting = {name.replace("__", "."): value for name, value in earlier.items()} | dict(run.setting)
    config = SUITE.config(run, out, setting)
    rows = [*([[90.0] * len(errors)] * config.epochs), errors]
    write_workdir(out / run.name, rows, hardened=hardened, split="validation")
    write_json(out / run.name / "config.json", to_json(config))


def test_lowest_hardened_error_is_chosen(tmp_path):
    """Counts a lost seed as an error of 100 %."""
    made(tmp_path, SWEEP[0], [2.0, 2.0], [9.0, 11.0])
    made(tmp_path, SWEEP[1], [5.0, 5.0], [8.0, 9.0])
    made(tmp_path, SWEEP[2], [1.0, None], [1.0, None])
    choice = choose(SUITE, tmp_path, SWEEP)["rate"]
    assert choice["chosen"] == "sweep/rate0.01"
    assert choice["setting"] == {"optimizer.learning_rate": 0.01}
    assert [entry["mean"] for entry in choice["candidates"]] == [10.0, 8.5, 50.5]
    assert choice["missing"] == []
    by_its_own_error = [dataclasses.replace(run, chosen_by="valid_error") for run in SWEEP]
    assert choose(SUITE, tmp_path, by_its_own_error)["rate"]["chosen"] == "sweep/rate0.001"


def test_suite_goes_on_after_a_failed_run(tmp_path, capsys, monkeypatch):
    start = worker.train.start

    def failing(recipe, config, workdir, launch):
        if config.epochs == 2:
            raise ValueError("out of luck\nand more")
        start(recipe, config, workdir, launch)

    monkeypatch.setattr(worker.train, "start", failing)
    runs = [SuiteRun("broken", BASE | {"epochs": 2}), *SWEEP[1:], FINAL[1]]
    made(tmp_path, SWEEP[1], [99.0, 99.0], [99.0, 99.0])  # lest another program be compiled
    of_another_preset = {"chosen": "sweep/other", "setting": {"p": 2.0}}
    (tmp_path / "choices.json").write_text(json.dumps({"other": of_another_preset}))
    assert command.run_suite(SUITE, tmp_path, runs, FINAL[1:], ["suite"]) == 1
    assert "sweep/rate0.1 must run first" in capsys.readouterr().out
    assert command.run_suite(SUITE, tmp_path, runs, runs, ["suite"]) == 1
    out, err = capsys.readouterr()
    assert "[1/4] broken  FAILED: ValueError: out of luck\n" in out
    assert err == "error: 1 failed: broken\n"
    assert re.search(r"\[3/4\] sweep/rate0\.1  valid_error .* s  \(time left ~ ", out)
    choices = json.loads((tmp_path / "choices.json").read_text())
    assert choices["other"] == of_another_preset
    config = json.loads((tmp_path / "final-chosen" / "config.json").read_text())
    assert choices["rate"]["chosen"] == "sweep/rate0.1"
    assert config["optimizer"]["learning_rate"] == 0.1
    assert config["split"] == "test"
    assert (tmp_path / "table.md").exists()
    (figure,) = tmp_path.glob("figures/figure5-*-layers1.png")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    figure.unlink()
    assert command.run_suite(SUITE, tmp_path, runs, runs[1:], ["suite"]) == 0
    assert figure.exists()
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert capsys.readouterr().out.count("was done") == 3


def test_stopped_run_stops_the_suite(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(worker.train, "start", lambda *given: True)
    suite = dataclasses.replace(SUITE, presets={"demo": lambda: [SuiteRun("final-one", BASE)]})
    arguments = [f"--out={tmp_path}", "--preset=demo", "--jobs=1"]
    assert command.main(suite, arguments) == 0
    assert "stopped; run it again and it resumes" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        command.main(suite, [*arguments, "--only=("])


def test_given_choices_override_the_sweep(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(worker.train, "start", lambda recipe, config, *rest: trained.append(config) or True)
    suite = dataclasses.replace(SUITE, presets={"demo": lambda: [*SWEEP, FINAL[1]]})
    made(tmp_path, SWEEP[1], [1.0, 1.0], [1.0, 1.0])
    write_json(tmp_path / "given.json", {"rate": GIVEN})
    arguments = [f"--out={tmp_path}", "--only=final", "--jobs=1"]
    assert command.main(suite, [*arguments, f"--choices={tmp_path / 'given.json'}"]) == 0
    assert trained[0].optimizer.learning_rate == 0.05
    with pytest.raises(SystemExit, match="2"):
        command.main(suite, [*arguments, f"--choices={tmp_path / 'nowhere.json'}"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": 3}, "'rate' must be a choice"),
        ({"rate": {"setting": {}}}, "'rate' must be a choice"),
        ({"rate": GIVEN | {"setting": {"router.nope": 1}}}, r"final-\w+: the config has no field 'router.nope'"),
        ({"lam": GIVEN}, "lam; it must have some of what is chosen here: rate"),
    ],
)
def test_choices_of_something_else_are_refused(tmp_path, given, message):
    with pytest.raises(UsageError, match=message):
        command.run_suite(SUITE, tmp_path, [*SWEEP, FINAL[1]], FINAL, ["suite"], given=given)


def test_candidate_takes_a_given_choice(tmp_path):
    run = SuiteRun("sweep/b1", VALIDATION, {"optimizer.momentum": 0.5}, candidate_for="both", best_of="rate")
    made(tmp_path, run, [7.0], [7.0], optimizer__learning_rate=0.05)
    both = choose(SUITE, tmp_path, [*SWEEP, run], {"rate": GIVEN})["both"]
    assert (both["chosen"], both["missing"]) == ("sweep/b1", [])


def test_run_of_other_config_is_not_chosen(tmp_path):
    for run, error in zip(SWEEP, (9.0, 8.0, 1.0), strict=True):
        made(tmp_path, run, [error], [error])
    path = tmp_path / SWEEP[2].name / "config.json"
    config = json.loads(path.read_text())
    for field, other in {"epochs": 2, "prune_layers": [0], "batch_size": 7}.items():
        write_json(path, config | {field: other})
        choice = choose(SUITE, tmp_path, SWEEP)["rate"]
        assert (choice["chosen"], choice["missing"]) == (SWEEP[1].name, [SWEEP[2].name])
    write_json(path, config | {"mesh": {"data": 2}})  # how a run is computed is nothing that it is chosen by
    runner.write_choices(SUITE, tmp_path, SWEEP)
    choices = json.loads((tmp_path / "choices.json").read_text())
    assert choices["rate"]["chosen"] == SWEEP[2].name
    # Where nothing counts any more, the choice stays: there is no other record of it.
    runner.write_choices(
        SUITE, tmp_path, [dataclasses.replace(run, base=run.base | {"batch_size": 7}) for run in SWEEP]
    )
    assert json.loads((tmp_path / "choices.json").read_text()) == choices


def test_second_choice_builds_on_the_first(tmp_path):
    """Lets the winner of the first compete in the second, too, if it was trained alike."""

    def second(base):
        return [
            SuiteRun(f"sweep/b1-{b1:g}", base, {"optimizer.momentum": b1}, candidate_for="both", best_of="rate")
            for b1 in (0.5, 0.8)
        ]

    runs = second(VALIDATION)
    for run, error in zip(SWEEP, (9.0, 8.0, 10.0), strict=True):
        made(tmp_path, run, [error], [error])
    made(tmp_path, runs[0], [8.5], [8.5], optimizer__learning_rate=0.01)
    made(tmp_path, runs[1], [7.5], [7.5], optimizer__learning_rate=0.1)  # which has won before
    both = choose(SUITE, tmp_path, SWEEP + runs)["both"]
    assert (both["chosen"], both["missing"]) == ("sweep/rate0.01", ["sweep/b1-0.8"])
    made(tmp_path, runs[1], [7.5], [7.5], optimizer__learning_rate=0.01)
    both = choose(SUITE, tmp_path, SWEEP + runs)["both"]
    assert both["setting"] == {"optimizer.learning_rate": 0.01, "optimizer.momentum": 0.8}
    assert len(both["candidates"]) == 3
    (tmp_path / "sweep/rate0.001" / "summary.json").unlink()
    assert choose(SUITE, tmp_path, SWEEP + runs)["both"]["missing"] == ["sweep/rate0.001"]
    longer = second(VALIDATION | {"epochs": 2})
    for run in longer:
        made(tmp_path, run, [20.0], [20.0], optimizer__learning_rate=0.01)
    both = choose(SUITE, tmp_path, SWEEP + longer)["both"]
    assert [entry["run"] for entry in both["candidates"]] == [run.name for run in longer]
