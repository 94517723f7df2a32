"""The table's numbers, by hand, and what it does with runs that it cannot use."""

import json

import pytest

from configs.mnist_pruning import get_config
from experiments.core.errors import UsageError
from experiments.core.record.workdir import Workdir
from experiments.core.report.results import load
from experiments.mnist_pruning.report import figures, table
from tests.scripts.workdirs import write_workdir

START = [90.0, 90.0, 90.0]


def rows_by_run(directory):
    numbers = json.loads((directory / "table.json").read_text())
    return {row["run"]: row for section in numbers["final"] + numbers["sweep"] for row in section["rows"]}


def test_intervals_and_paired_differences_are_those_computed_by_hand(tmp_path):
    write_workdir(tmp_path / "hard", [START, [10.0, 12.0, 17.0]], method="hard")
    write_workdir(tmp_path / "relaxed", [START, [7.0, 8.0, 6.0]], method="relaxed")
    table.make(tmp_path)
    relaxed = rows_by_run(tmp_path)["relaxed"]
    # t(0.975, 2 degrees) = 4.302653; the standard deviation of (7, 8, 6) is 1.
    assert relaxed["test_error"]["mean"] == pytest.approx(7.0)
    assert relaxed["test_error"]["interval95"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    # The differences are -3, -4, -11: mean -6, variance (9 + 4 + 25) / 2 = 19.
    assert relaxed["minus_hard"]["mean"] == pytest.approx(-6.0)
    assert relaxed["minus_hard"]["interval95"] == pytest.approx(4.302653 * (19 / 3) ** 0.5, rel=1e-6)
    assert relaxed["seconds_per_epoch_and_seed"] == pytest.approx(2.0)
    assert rows_by_run(tmp_path)["hard"]["minus_hard"] is None
    assert "| 7.00 ± 2.48 | -6.00 ± 10.83 | 10.00 ± 0.00 |" in (tmp_path / "table.md").read_text()


def test_pairs_are_by_seed_and_within_the_same_layers(tmp_path):
    write_workdir(tmp_path / "hard", [START, [10.0, 20.0, 30.0]], method="hard", seeds=(2, 1, 0))
    write_workdir(tmp_path / "hard23", [START, [1.0, 1.0, 1.0]], method="hard", prune_layers=(2, 3))
    write_workdir(tmp_path / "ot", [START[:2], [29.0, 18.0]], method="ot_straight_through", seeds=(0, 1))
    table.make(tmp_path)
    assert rows_by_run(tmp_path)["ot"]["minus_hard"]["per_seed"] == [-1.0, -2.0]


def test_runs_at_a_tuned_learning_rate_are_compared_among_themselves(tmp_path):
    write_workdir(tmp_path / "final-hard", [START, [10.0, 20.0, 30.0]], method="hard")
    write_workdir(tmp_path / "final-tuned-hard", [START, [9.0, 9.0, 9.0]], method="hard", optimizer__learning_rate=0.1)
    write_workdir(tmp_path / "final-tuned-ista", [START, [6.0, 7.0, 8.0]], method="ista", optimizer__learning_rate=0.03)
    table.make(tmp_path)
    assert rows_by_run(tmp_path)["final-tuned-ista"]["minus_hard"]["per_seed"] == [-3.0, -2.0, -1.0]
    assert rows_by_run(tmp_path)["final-tuned-ista"]["setting"] == "learning rate 0.03"


def test_hard_top_k_in_other_circumstances_is_none_to_be_held_against(tmp_path):
    final = [10.0, 20.0, 30.0]
    for name, fields in {"a": {}, "network": {"budget": "network"}, "wide": {"hidden": (64, 64)}}.items():
        write_workdir(tmp_path / f"hard-{name}", [START, final], method="hard", **fields)
        write_workdir(tmp_path / f"relaxed-{name}", [START, [value + len(name) for value in final]], **fields)
    write_workdir(tmp_path / "long", [START, START, [1.0, 1.0, 1.0]])
    write_workdir(tmp_path / "raw", [START, [1.0, 1.0, 1.0]], inputs="raw")
    table.make(tmp_path)
    rows = rows_by_run(tmp_path)
    for name in ("a", "network", "wide"):
        assert rows[f"relaxed-{name}"]["minus_hard"]["mean"] == pytest.approx(len(name))
    assert rows["long"]["minus_hard"] is rows["raw"]["minus_hard"] is None
    assert (
        "| relaxed top-k | p = 2, lam = 1e-4 (the paper's lam) | 1.00 ± 0.00 | - |"
        in (tmp_path / "table.md").read_text()
    )


def test_runs_with_a_mask_of_the_literature_are_named_after_it(tmp_path):
    mask = {"method": "mask_straight_through", "mask__strength": 0.02}
    write_workdir(tmp_path / "lapsum", [START, [7.0, 8.0, 6.0]], mask__name="lapsum", **mask)
    write_workdir(tmp_path / "perturbed", [START, [7.0, 8.0, 6.0]], mask__name="perturbed", **mask)
    table.make(tmp_path)
    assert [(row["method"], row["setting"]) for row in rows_by_run(tmp_path).values()] == [
        ("hard, LapSum gradient", "temperature = 0.02"),
        ("hard, perturbed-mask gradient", "sigma = 0.02, 10 samples"),
    ]
    legend = figures.draw(load(tmp_path)[0])["all-methods-layers123"].legends[0]
    assert any("hard, LapSum gradient, temperature = 0.02: 7.0 ± " in text.get_text() for text in legend.get_texts())


def test_runs_made_before_there_were_such_masks_are_still_read(tmp_path):
    write_workdir(tmp_path / "ot", [START, [7.0, 8.0, 6.0]], method="ot_straight_through")
    config = json.loads((tmp_path / "ot" / "config.json").read_text())
    del config["mask"]
    (tmp_path / "ot" / "config.json").write_text(json.dumps(config))
    table.make(tmp_path)
    assert rows_by_run(tmp_path)["ot"]["setting"] == "epsilon = 0.1"
    with pytest.raises(UsageError, match=r"config\.mask\.name \(saved nothing, asked \"sigmoid\"\)"):
        Workdir(tmp_path / "ot").check(get_config("ot_straight_through"))


def test_diverged_seeds_leave_the_means_and_are_counted(tmp_path):
    write_workdir(tmp_path / "hard", [START, [10.0, 20.0, None]], method="hard")
    write_workdir(tmp_path / "ista", [START, [None, 15.0, 16.0]], method="ista")
    write_workdir(tmp_path / "dense", [START, [None, None, None]], method="dense")
    table.make(tmp_path)
    rows = rows_by_run(tmp_path)
    assert rows["ista"]["test_error"]["mean"] == pytest.approx(15.5)
    assert rows["ista"]["minus_hard"]["per_seed"] == [None, -5.0, None]
    assert rows["ista"]["diverged"] == 1
    assert rows["dense"]["test_error"]["mean"] is None
    assert (
        "| dense |  | - | - | - | - | in 0 of 3 seeds | in 0 of 3 seeds | 2 | 3 | 3 |"
        in (tmp_path / "table.md").read_text()
    )


def test_broken_and_unfinished_runs_are_listed_with_the_reason(tmp_path):
    for name in ("sound", "unfinished", "without_config", "garbled", "empty", "mixed", "foreign"):
        write_workdir(tmp_path / "runs" / name, [START, [7.0, 8.0, 6.0]])
    runs = tmp_path / "runs"
    (runs / "unfinished" / "summary.json").unlink()
    (runs / "without_config" / "config.json").unlink()
    (runs / "garbled" / "summary.json").write_text("{")
    (runs / "empty" / "metrics.jsonl").write_text("")
    (runs / "mixed" / "summary.json").write_text(
        (runs / "sound" / "summary.json").read_text().replace("7.0", "3.0"),
    )
    (runs / "foreign" / "config.json").write_text("[]")
    found, problems = load(tmp_path)
    assert [run.name for run in found] == ["runs/sound"]
    reasons = {problem.name: problem.reason for problem in problems}
    assert reasons["runs/unfinished"] == "unfinished: epoch 1 of 1"
    assert reasons["runs/without_config"] == "config.json is missing"
    assert reasons["runs/garbled"].startswith("summary.json is damaged (no JSON: ")
    assert reasons["runs/empty"] == "metrics.jsonl is missing or empty"
    assert "does not belong" in reasons["runs/mixed"]
    assert reasons["runs/foreign"].startswith("config.json is damaged (no JSON object): ")
    table.make(tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert all(f"`{name}`: {reason}" in text for name, reason in reasons.items())


def test_the_papers_number_stands_beside_ours_on_mnist_alone(tmp_path):
    write_workdir(tmp_path / "a" / "run", [START, [7.0, 8.0, 6.0]])
    write_workdir(tmp_path / "b" / "run", [START, [7.0, 8.0, 6.0]], dataset="digits")
    for name, stated in (("a", True), ("b", False)):
        table.make(tmp_path / name)
        assert ("the paper's number" in (tmp_path / name / "table.md").read_text()) == stated


def test_the_sweep_marks_what_was_chosen(tmp_path):
    for lam in (1e-3, 1e-2):
        write_workdir(tmp_path / f"lam{lam}", [START, [5.0, 6.0, 7.0]], split="validation", lam__start=lam)
    (tmp_path / "choices.json").write_text(json.dumps({"c": {"chosen": "lam0.01"}}))
    table.make(tmp_path)
    assert {name: row["chosen"] for name, row in rows_by_run(tmp_path).items()} == {"lam0.001": False, "lam0.01": True}


def test_a_directory_that_is_not_there_is_one_line(tmp_path, capsys):
    assert table.main([str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'nowhere'} is not a directory\n"


def test_no_runs_make_an_empty_table(tmp_path, capsys):
    assert table.main([str(tmp_path)]) == 0
    assert "No runs." in capsys.readouterr().out
