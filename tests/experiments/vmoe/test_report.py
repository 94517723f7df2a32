"""Tables, figure and findings of V-MoE, of runs with known numbers."""

import matplotlib as mpl
import numpy as np
import pytest

from experiments.core.report.style import STYLE
from experiments.vmoe import report
from tests.experiments.vmoe import tables
from tests.scripts.workdirs import write_vmoe

HARD = [[1.0, 1.0, 1.0], [20.0, 22.0, 24.0]]
RELAXED = [[1.0, 1.0, 1.0], [21.0, 24.0, 27.0]]


@pytest.fixture(autouse=True)
def _fresh():
    report.load.cache_clear()


def final_of(directory):
    """The runs on test, and the one that each is compared with."""
    final = report.final_runs(report.PRESENTATION.load(directory)[0])
    hards = report.PRESENTATION.references(final)
    return final, {name: hard and hard.name for name, hard in hards.items()}


def rows_of(directory, heading="Test after 1000 steps"):
    """The rows of a table by router, after it has been made."""
    report.make(directory)
    lines = (directory / "table.md").read_text().splitlines()
    return {row["router"]: row for row in tables.read(lines, heading)}


def test_precision_is_compared_seed_by_seed_with_the_hard_router(tmp_path):
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed", support=32.0)
    write_vmoe(tmp_path / "hard", HARD)
    rows = rows_of(tmp_path)
    assert list(rows) == ["hard, gates", "relaxed, logits"]
    # Two degrees of freedom: t(0.975) = 4.3027, t(0.8) = 1.0607; the standard error of the differences is 1 / sqrt(3).
    assert list(rows["relaxed, logits"].values())[1:5] == ["0.1", "24.00 ± 7.45", "+2.00 ± 2.48", "3.10"]
    assert list(rows["hard, gates"].values())[1:5] == ["-", "22.00 ± 4.97", "-", "-"]
    text = (tmp_path / "table.md").read_text()
    assert "In every row: learning rate 3e-3, seeds 3, diverged 0." in text
    assert text.startswith("A stand-in for V-MoE S/32 on JFT-300M: cifar100.")
    assert rows["relaxed, logits"]["tokens of an expert"].startswith("31.00")  # of layers with 32 and 30


def test_routing_has_the_columns_that_some_run_has_and_stability_is_paired_by_score(tmp_path):
    write_vmoe(tmp_path / "gates", [*HARD, HARD[-1]], stability=(40.0, 60.0))
    write_vmoe(tmp_path / "logits", [*HARD, HARD[-1]], router__score="logits", stability=(50.0, 60.0))
    write_vmoe(tmp_path / "relaxed", [*HARD, HARD[-1]], "small,router=relaxed", stability=(52.0, 64.0))
    write_vmoe(tmp_path / "choice", HARD, "small,router=token_choice", support=32.0)
    rows = rows_of(tmp_path)
    # Means over the layers, and of the stability over all rows that have one.
    shown = {router: [row["stability, %"], row["stability minus hard"]] for router, row in rows.items()}
    assert shown == {
        "hard, gates": ["51.00 ± 0.00", "-"],
        "hard, logits": ["56.00 ± 0.00", "+5.00 ± 0.00"],
        "relaxed, logits": ["59.00 ± 0.00", "+3.00 ± 0.00"],
        "token choice": ["-", "-"],
    }


def test_a_relaxed_router_is_compared_with_the_hard_one_of_its_score_and_others_with_that_of_gates(tmp_path):
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed")
    assert final_of(tmp_path)[1] == {"relaxed": None}
    assert "+" not in rows_of(tmp_path)["relaxed, logits"].values()
    write_vmoe(tmp_path / "logits", [[1.0] * 3, [19.0, 20.0, 21.0]], router__score="logits")
    assert final_of(tmp_path)[1] == {"logits": None, "relaxed": "logits"}
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "gates", RELAXED, "small,router=relaxed", router__score="gates")
    write_vmoe(tmp_path / "tokens", RELAXED, "small,router=token_choice")
    expected = {"hard": None, "logits": "hard", "relaxed": "logits", "gates": "hard", "tokens": "hard"}
    final, hards = final_of(tmp_path)
    assert hards == expected
    assert [run.name for run in final] == list(expected)  # in the order of the routers
    minus = {router: row["minus hard"] for router, row in rows_of(tmp_path).items()}
    assert minus["relaxed, logits"] == "+4.00 ± 4.97"
    assert minus["hard, logits"] == "-2.00 ± 2.48"


def test_a_hard_router_in_other_circumstances_is_none_to_compare_with(tmp_path):
    forms = {
        "a": ("small", {}),
        "b": ("small", {"dataset": "cifar10"}),
        "c": ("tokens", {"steps": 1000}),
        "d": ("small", {"router__k": 40}),
        "e": ("small", {"batch_size": 100}),
        "f": ("small", {"steps": 400}),
    }
    for name, (form, fields) in forms.items():
        write_vmoe(tmp_path / f"relaxed-{name}", RELAXED, f"{form},router=relaxed", **fields)
    write_vmoe(tmp_path / "hard-a", HARD, optimizer__learning_rate=0.01)
    write_vmoe(tmp_path / "hard-d", HARD, router__k=40)
    write_vmoe(tmp_path / "hard-f", HARD, steps=400)
    hards = {name: hard for name, hard in final_of(tmp_path)[1].items() if name.startswith("relaxed")}
    assert hards == {f"relaxed-{name}": f"hard-{name}" if name in "adf" else None for name in forms}


def test_runs_of_single_seeds_are_pooled_and_the_full_size_is_no_stand_in(tmp_path):
    for seed in range(3):
        write_vmoe(tmp_path / f"hard{seed}", [[row[seed]] for row in HARD], "router=hard", seeds=(seed,))
        write_vmoe(tmp_path / f"relaxed{seed}", [[row[seed]] for row in RELAXED], "router=relaxed", seeds=(seed,))
    rows = rows_of(tmp_path, "Test after 93800 steps")
    assert rows["relaxed, logits"]["minus hard"] == "+2.00 ± 2.48"
    assert "stand-in" not in (tmp_path / "table.md").read_text()


def test_the_figure_has_differences_with_intervals_and_is_the_same_bytes_every_time(tmp_path):
    write_vmoe(tmp_path / "hard", HARD)
    write_vmoe(tmp_path / "relaxed", RELAXED, "small,router=relaxed")
    write_vmoe(tmp_path / "lost", [[1.0] * 3, [None] * 3], "small,router=token_choice")
    write_vmoe(tmp_path / "long", HARD, steps=2000)
    first = {path: path.read_bytes() for path in report.make(tmp_path)}
    assert {path.name for path in first} == {"table.md", "figure7.png", "figure7.svg"}
    assert first == {path: path.read_bytes() for path in report.make(tmp_path)}
    with mpl.rc_context(STYLE):
        short, long = report.figure7(final_of(tmp_path)[0]).axes
    assert [label.get_text() for label in short.get_yticklabels()] == ["hard, gates", "relaxed, logits", "token choice"]
    assert [label.get_text() for label in long.get_yticklabels()] == ["hard, gates"]
    (bars,) = short.containers  # the hard router is at 0, and what is lost has no place
    points, _, (interval,) = bars.lines
    np.testing.assert_allclose(np.array(points.get_xdata(), float), [2.0])
    low, high = np.array(interval.get_segments()[0], float)
    np.testing.assert_allclose([low, high], [[2 - 2.4841, 1], [2 + 2.4841, 1]], rtol=1e-3)  # in the second row


@pytest.mark.parametrize(
    ("variant", "relaxed", "expected"),
    [("small,", 24.0, ("not possible here", "yes")), ("", 24.0, ("yes", None)), ("", 20.0, ("no", None))],
)
def test_precision_of_routers_is_judged_by_intervals(tmp_path, variant, relaxed, expected):
    assert report.precision(tmp_path) is None
    report.load.cache_clear()
    for name, level in (("hard", 22.0), ("relaxed", relaxed), ("annealed", 30.0)):
        rows = [[1.0] * 3, [level + seed + (seed % 2) / 10 for seed in range(3)]]
        write_vmoe(tmp_path / "vmoe" / name, rows, f"{variant}router={name}", steps=100)
    finding = report.precision(tmp_path)
    assert answers(finding) == expected
    verdict = finding.tuned or finding.as_stated
    assert float(verdict.number.split()[1]) == abs(relaxed - 22.0)  # an annealed router is none of the paper's


def test_precision_on_features_comes_before_that_of_the_other_stand_in(tmp_path):
    write_vmoe(tmp_path / "vmoe" / "relaxed", RELAXED, "small,router=relaxed", steps=100)
    for steps, levels in ((100, {"hard": 60.0, "relaxed": 55.0}), (400, {"hard": 60.0, "relaxed": 65.0})):
        for name, level in levels.items():
            rows = [[1.0] * 3, [level, level + 1, level + 2.1 + (name == "hard")]]
            write_vmoe(tmp_path / "vmoe_tokens" / f"{name}{steps}", rows, f"tokens,router={name}", steps=steps)
    finding = report.precision(tmp_path)
    assert answers(finding) == ("not possible here", "mixed")
    assert finding.tuned.number.startswith("precision 5.33 ± ")
    assert set(report.blocks(tmp_path)) == {"vmoe, 100 steps", "vmoe_tokens, 100 steps"}


def test_the_papers_dykstra_is_the_number_that_is_told(tmp_path):
    write_vmoe(tmp_path / "vmoe" / "hard", HARD, router__score="logits")
    for name, gain, dykstra in (("exact", 5.0, 0), ("papers", 1.0, 10)):
        rows = [HARD[0], [value + gain for value in HARD[1]]]
        write_vmoe(tmp_path / "vmoe" / name, rows, "small,router=relaxed", router__dykstra=dykstra)
    assert report.precision(tmp_path).tuned.number == "precision 1.00 ± 0.00 higher"


def answers(finding):
    """The two answers: at the paper's settings, and tuned."""
    return tuple(verdict and verdict.answer for verdict in (finding.as_stated, finding.tuned))
