"""The table of V-MoE: differences to the hard router, routing as a mean over layers, names, and what is left out."""

import json

import pytest

from experiments.vmoe.report import table
from tests.scripts.workdirs import write_fine_tuning, write_vmoe

HARD = [[1.0, 1.0, 1.0], [20.0, 22.0, 24.0]]
RELAXED = [[1.0, 1.0, 1.0], [21.0, 24.0, 27.0]]


def rows_of(directory, part="final"):
    """The rows of a part of the table by run, after the table has been made."""
    table.make(directory)
    return {row["run"]: row for row in json.loads((directory / "table.json").read_text())[part]}


def text_of(directory):
    return (directory / "table.md").read_text()


def test_precision_is_compared_seed_by_seed_with_the_hard_router(tmp_path):
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed", support=32.0, step_seconds=1.25)
    write_vmoe(tmp_path / "hard", HARD)
    rows = rows_of(tmp_path)
    assert list(rows) == ["hard", "relaxed"]
    relaxed = rows["relaxed"]
    assert relaxed["minus_hard"]["per_seed"] == [1.0, 2.0, 3.0]
    assert relaxed["minus_hard"]["interval95"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert relaxed["detectable"] == pytest.approx((4.3027 + 1.0607) / 3**0.5, rel=1e-4)
    assert relaxed["step_over_hard"] == 1.25
    assert relaxed["routing"]["support"]["per_seed"] == [31.0] * 3  # of layers with 32 and 30
    assert (rows["hard"]["minus_hard"], rows["hard"]["step_over_hard"]) == (None, 1.0)
    text = text_of(tmp_path)
    assert (
        "| relaxed expert choice, p = 2, of the logits | learning rate 3e-3, lam = 0.1 | 24.00 ± 7.45 | +2.00 ± 2.48 "
        "| 3.10 | 1.25 | 3 | 0 |" in text
    )
    assert (
        "A stand-in for V-MoE S/32 on JFT-300M, which is not public: 4 blocks of width 64 on cifar100, 2 of them"
        in text
    )
    assert "1.5 times the time" in text


def test_step_times_compare_on_the_same_processors_alone(tmp_path):
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed", step_seconds=0.5)
    path = tmp_path / "relaxed" / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": {"cores": 2}}))
    rows = rows_of(tmp_path)
    assert (rows["relaxed"]["step_seconds"], rows["relaxed"]["step_over_hard"]) == (0.5, None)
    assert rows["hard"]["step_over_hard"] == 1.0


def test_routing_has_the_columns_that_some_run_has(tmp_path):
    write_vmoe(tmp_path / "hard", [*HARD, HARD[-1]], stability=(40.0, 60.0))
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed", support=32.0)
    rows = rows_of(tmp_path)
    # Means over the layers, and of the stability over all rows that have one.
    assert rows["hard"]["routing"]["stability"]["per_seed"] == [51.0] * 3
    assert rows["hard"]["routing"]["entropy"]["per_seed"] == [0.0] * 3
    assert "stability" not in rows["relaxed"]["routing"]
    text = text_of(tmp_path)
    assert "| router | setting | tokens of an expert | entropy of gates, nats | stability, % |" in text
    assert "| hard expert choice, of the gates | learning rate 3e-3 | 29.00 | 0.00 | 51.00 |" in text
    assert "| relaxed expert choice, p = 2, of the logits | learning rate 3e-3, lam = 0.1 | 31.00 | - | - |" in text
    assert "two rows of training, 500 steps apart, the share in both; mean over training" in text
    assert "At the end of training, but for stability, means over groups" in text
    assert "mutual information" not in text


def test_stability_is_paired_with_the_hard_router_of_the_same_score(tmp_path):
    write_vmoe(tmp_path / "gates", [*HARD, HARD[-1]], stability=(40.0, 60.0))
    write_vmoe(tmp_path / "logits", [*HARD, HARD[-1]], router__score="logits", stability=(50.0, 60.0))
    write_vmoe(tmp_path / "relaxed", [*HARD, HARD[-1]], "small,router=relaxed", stability=(52.0, 64.0))
    rows = rows_of(tmp_path)
    assert rows["gates"]["stability_minus_hard"] is None
    assert rows["relaxed"]["stability_minus_hard"]["per_seed"] == [3.0] * 3
    text = text_of(tmp_path)
    assert "| stability, % | stability minus hard |" in text
    assert "| 59.00 | +3.00 ± 0.00 |" in text


def test_a_stand_in_on_features_says_so(tmp_path):
    write_vmoe(tmp_path / "hard", HARD, "tokens,router=hard")
    table.make(tmp_path)
    features = "ImageNet's features of cifar100 (efficientnet_lite0 at 128 pixels, frozen)"
    assert f"2 blocks of width 64 on {features}, 2 of them with 32 experts" in text_of(tmp_path)


def test_without_a_hard_router_there_is_nothing_to_hold_against(tmp_path):
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed")
    row = rows_of(tmp_path)["relaxed"]
    assert (row["hard"], row["minus_hard"], row["step_over_hard"]) == (None, None, None)


def test_a_relaxed_router_is_held_against_the_hard_one_of_the_same_score(tmp_path):
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "logits", [[1.0] * 3, [19.0, 20.0, 21.0]], router__score="logits")
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed")
    write_vmoe(tmp_path / "gates", RELAXED, "small,router=relaxed", router__score="gates")
    write_vmoe(tmp_path / "tokens", RELAXED, "small,router=token_choice")
    rows = rows_of(tmp_path)
    assert list(rows) == ["hard", "logits", "relaxed", "gates", "tokens"]
    assert {name: row["hard"] for name, row in rows.items()} == {
        "hard": None,
        "logits": "hard",
        "relaxed": "logits",
        "gates": "hard",
        "tokens": "hard",
    }
    assert rows["relaxed"]["minus_hard"]["per_seed"] == [2.0, 4.0, 6.0]
    assert rows["logits"]["minus_hard"]["per_seed"] == [-1.0, -2.0, -3.0]


def test_a_hard_router_in_other_circumstances_is_none_to_be_held_against(tmp_path):
    forms = {
        "a": ("small", {}),
        "b": ("small", {"dataset": "cifar10"}),
        "c": ("tokens", {"steps": 1000}),
        "d": ("small", {"router__k": 40}),
        "e": ("small", {"batch_size": 100}),
    }
    for name, (form, fields) in forms.items():
        write_vmoe(tmp_path / f"relaxed-{name}", RELAXED, f"{form},router=relaxed", **fields)
    write_vmoe(tmp_path / "hard-a", HARD, optimizer__learning_rate=0.01)
    write_vmoe(tmp_path / "hard-d", HARD, router__k=40)
    held = {name: row["hard"] for name, row in rows_of(tmp_path).items() if name.startswith("relaxed")}
    assert held == {f"relaxed-{name}": f"hard-{name}" if name in "ad" else None for name in forms}


def test_what_trains_for_longer_is_held_against_its_like_and_stands_apart(tmp_path):
    for steps, gain in ((100, 0.0), (400, 30.0)):
        hard, relaxed = ([rows[0], [value + gain for value in rows[1]]] for rows in (HARD, RELAXED))
        write_vmoe(tmp_path / f"relaxed{steps}", relaxed, "small,router=relaxed", steps=steps)
        write_vmoe(tmp_path / f"hard{steps}", hard, steps=steps)
        write_vmoe(tmp_path / f"tried{steps}", hard, steps=steps, split="validation")
    rows = rows_of(tmp_path)
    assert {name: row["hard"] for name, row in rows.items()} == {
        "hard100": None,
        "relaxed100": "hard100",
        "hard400": None,
        "relaxed400": "hard400",
    }
    assert rows["relaxed400"]["minus_hard"]["per_seed"] == [1.0, 2.0, 3.0]
    headings = [line for line in text_of(tmp_path).splitlines() if line.startswith(("### Test", "### Val"))]
    assert headings == [
        "### Test, cifar100: precision-at-1 after 100 steps",
        "### Test, cifar100: precision-at-1 after 400 steps",
        "### Validation, 100 steps",
        "### Validation, 400 steps",
    ]


def test_runs_of_single_seeds_are_pooled_and_the_full_size_is_no_stand_in(tmp_path):
    for seed in range(3):
        write_vmoe(tmp_path / f"hard{seed}", [[row[seed]] for row in HARD], "router=hard", seeds=(seed,))
        write_vmoe(tmp_path / f"relaxed{seed}", [[row[seed]] for row in RELAXED], "router=relaxed", seeds=(seed,))
    rows = rows_of(tmp_path)
    assert list(rows) == ["hard0, hard1, hard2", "relaxed0, relaxed1, relaxed2"]
    assert rows["relaxed0, relaxed1, relaxed2"]["minus_hard"]["per_seed"] == [1.0, 2.0, 3.0]
    assert rows["relaxed0, relaxed1, relaxed2"]["step_over_hard"] is None  # rows of several runs are not joined
    assert "stand-in" not in text_of(tmp_path)


def test_routers_are_named_and_in_order(tmp_path):
    lam = {"schedule": "geometric", "start": 1.0, "end": 0.01}
    forms = {
        "f": ("small,router=soft", {}),
        "e": ("small,router=token_choice", {}),
        "d": ("small,router=relaxed", {"router__score": "gates", "router__lam": lam}),
        "c": ("small,router=relaxed", {"router__dykstra": 10}),
        "b": ("small,router=relaxed", {"router__capacity": 40, "router__p": 4 / 3}),
        "a": ("small,router=hard", {}),
    }
    for name, (variant, fields) in forms.items():
        write_vmoe(tmp_path / name, HARD, variant, **fields)
    rows = rows_of(tmp_path)
    assert {name: row["router"] for name, row in rows.items()} == {
        "a": "hard expert choice, of the gates",
        "b": "relaxed expert choice, p = 4/3, of the logits, 40 slots",
        "c": "relaxed expert choice, p = 2, of the logits, Dykstra with 10 iterations",
        "d": "relaxed expert choice, p = 2, of the gates",
        "e": "token choice, 2 experts",
        "f": "Soft MoE",
    }
    assert list(rows) == ["a", "b", "c", "d", "e", "f"]
    assert rows["d"]["setting"] == "learning rate 3e-3, lam from 1 to 0.01"


def test_diverged_seeds_leave_the_means_and_are_counted(tmp_path):
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "relaxed", [[1.0] * 3, [None, 25.0, 26.0]], "small,router=relaxed")
    relaxed = rows_of(tmp_path)["relaxed"]
    assert relaxed["precision_at_1"]["mean"] == pytest.approx(25.5)
    assert relaxed["minus_hard"]["per_seed"] == [None, 3.0, 2.0]
    assert relaxed["routing"]["support"]["per_seed"] == [None, 29.0, 29.0]
    assert relaxed["diverged"] == 1


def test_the_sweep_marks_what_was_chosen_and_broken_runs_are_named(tmp_path):
    for lam in (0.1, 1.0):
        fields = {"split": "validation", "router__lam__start": lam, "router__lam__end": lam}
        write_vmoe(tmp_path / f"lam{lam:g}", [[1.0], [16.0]], "small,router=relaxed", **fields)
    (tmp_path / "choices.json").write_text(json.dumps({"relaxed": {"chosen": "lam1"}}))
    write_fine_tuning(tmp_path / "other", {1: [5.0]})
    assert {name: row["chosen"] for name, row in rows_of(tmp_path, "sweep").items()} == {"lam0.1": False, "lam1": True}
    assert "| learning rate 3e-3, lam = 1 | 16.00 | - | 29.00 | 0 of 1 | chosen |" in text_of(tmp_path)
    assert "- `other`: not a run of the V-MoE experiment" in text_of(tmp_path)
    assert "### Test" not in text_of(tmp_path)


def test_a_directory_without_runs_and_one_that_is_not_there(tmp_path, capsys):
    assert table.main([str(tmp_path)]) == 0
    assert "No runs." in capsys.readouterr().out
    assert table.main([str(tmp_path / "nowhere")]) == 2
