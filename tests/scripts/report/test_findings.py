"""Verdicts follow from the results: each rule is tried on results that meet it and on some that do not."""

import json
import shutil
from pathlib import Path

import pytest

from experiments.cifar100_vit.report import claims as fine_tuning
from experiments.cifar100_vit.report import table as fine_tuning_table
from experiments.cifar100_vit.report import verdict
from experiments.core.record.files import write_json
from experiments.core.report.finding import answer, in_every_case
from experiments.mnist_pruning.report import claims as pruning
from experiments.mnist_pruning.report import table as pruning_table
from scripts.report import operators, readme, solvers
from scripts.report.claims import CLAIMS
from tests.scripts.workdirs import write_bench, write_fine_tuning, write_workdir

ROOT = Path(__file__).resolve().parents[3]
START = [90.0, 88.0, 89.0]
GOOD, BAD = [5.0, 6.0, 5.5], [30.0, 20.0, 25.0]


def pruned(results, *, papers, annealed, ot=GOOD):
    """Results in which hard top-k errs by 12 to 14 %, and the annealed lam less than a constant one on validation."""
    directory = results / "mnist_pruning"
    write_workdir(directory / "final-hard", [START, [20.0, 21.0, 19.0], [12.0, 14.0, 13.0]], method="hard")
    for p in (2.0, 4 / 3):
        write_workdir(directory / f"final-papers-{p:.1f}", [START, papers, papers], p=p)
    tried = {
        "annealed": ({"lam__schedule": "geometric", "lam__start": 3.0, "debias": True}, annealed, GOOD),
        "constant": ({"lam__start": 1.0, "debias": True}, GOOD, BAD),
    }
    for name, (fields, errors, validation) in tried.items():
        write_workdir(directory / f"final-{name}", [START, errors, errors], **fields)
        write_workdir(directory / "sweep" / name, [START, validation, validation], split="validation", **fields)
    write_json(directory / "choices.json", {name: {"chosen": f"sweep/{name}"} for name in tried})
    write_workdir(directory / "final-ot", [START, ot, ot], method="ot_straight_through")
    pruning_table.make(directory)
    return results


def answers(finding):
    """As stated, and tuned."""
    return tuple(verdict and verdict.answer for verdict in (finding.as_stated, finding.tuned))


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ([1], "yes"),
        ([1, 1, 0], "yes"),
        ([1, 0], "no"),  # half of them show nothing
        ([0, 0], "no"),
        ([-1, -1], "no"),
        ([1, -1], "mixed"),
        ([1] * 8 + [-1] * 8, "mixed"),
        ([1] * 8 + [-1], "mixed"),
        ([1, -1, -1], "no"),  # one win among losses
        ([1, -1, 0, 0, 0, 0], "no"),
        ([1] * 3 + [-1] * 13, "no"),
    ],
)
def test_mixed_needs_wins_and_losses_and_one_win_among_losses_is_no(signs, expected):
    assert answer(signs) == expected


def test_one_counterexample_refutes_a_claim_about_every_case():
    assert in_every_case([True, True]) == "yes"
    assert in_every_case([True, False]) == "no"


@pytest.mark.parametrize(
    ("papers", "annealed", "expected"),
    [(GOOD, GOOD, ("yes", "yes")), (BAD, GOOD, ("no", "yes")), (BAD, BAD, ("no", "no")), (GOOD, BAD, ("yes", "no"))],
)
def test_pruning_at_the_papers_lam_is_judged_apart_from_the_lam_that_validation_chose(
    tmp_path, papers, annealed, expected
):
    results = pruned(tmp_path, papers=papers, annealed=annealed)
    assert answers(pruning.accuracy(results)) == expected
    assert answers(pruning.speed(results)) == expected
    assert answers(pruning.density(results)) == ("yes", "yes")


def test_pruning_numbers_are_those_of_the_table(tmp_path):
    results = pruned(tmp_path, papers=BAD, annealed=GOOD)
    rows = json.loads((tmp_path / "mnist_pruning" / "table.json").read_text())["final"][0]["rows"]
    minus = next(row["minus_hard"] for row in rows if row["run"] == "final-annealed")
    accuracy, speed = pruning.accuracy(results), pruning.speed(results)
    assert accuracy.tuned.number == f"error {-minus['mean']:.2f} ± {minus['interval95']:.2f} lower"
    assert (speed.as_stated.number, speed.tuned.number) == ("in 0 of 3 seeds", "after 1.00 ± 0.00 of 2 epochs")
    assert [number.mean for number in speed.measured] == [None, None, 1.0, 1.0]


def test_it_is_the_weights_that_are_kept_which_come_to_the_error_of_hard_top_k(tmp_path):
    results = pruned(tmp_path, papers=BAD, annealed=GOOD)
    shutil.rmtree(tmp_path / "mnist_pruning" / "final-annealed")
    fields = {"lam__schedule": "geometric", "lam__start": 3.0, "debias": True}
    write_workdir(tmp_path / "mnist_pruning" / "final-annealed", [START, GOOD, GOOD], hardened=BAD, **fields)
    pruning_table.make(tmp_path / "mnist_pruning")
    rows = json.loads((tmp_path / "mnist_pruning" / "table.json").read_text())["final"][0]["rows"]
    reached = next(row["hardened_to_hards_error"]["epochs"] for row in rows if row["run"] == "final-annealed")
    assert reached["per_seed"] == [1, 1, 1]  # before the last epoch, where it is bad
    assert answers(pruning.speed(results)) == ("no", "yes")


def test_variants_of_what_the_paper_leaves_open_are_counted(tmp_path):
    results = pruned(tmp_path, papers=BAD, annealed=BAD)
    assert "leaves open" not in pruning.accuracy(results).plain
    for variant, errors in (("as-elsewhere", BAD), ("momentum-0-9", GOOD)):
        for which, final in (("hard", [12.0, 14.0, 13.0]), ("p2", errors)):
            method = {"method": "hard" if which == "hard" else "relaxed"}
            write_workdir(tmp_path / f"mnist_pruning/why/{variant}-{which}", [START, final], **method)
    pruning_table.make(tmp_path / "mnist_pruning")
    assert "leaves open it is clearly better in 1 of 2 tries" in pruning.accuracy(results).plain


def test_without_hard_top_k_there_is_no_verdict_on_pruning_and_lost_seeds_are_no_success(tmp_path):
    lost = [None, None, None]
    results = pruned(tmp_path, papers=lost, annealed=BAD, ot=lost)
    for find in (pruning.accuracy, pruning.density, pruning.optimal_transport):
        assert find(results).as_stated.answer == "no"
    shutil.rmtree(tmp_path / "mnist_pruning" / "final-hard")
    pruning_table.make(tmp_path / "mnist_pruning")
    assert pruning.accuracy(results) is None
    assert pruning.speed(results) is None


def test_one_of_two_at_the_papers_lam_is_mixed(tmp_path):
    results = pruned(tmp_path, papers=GOOD, annealed=BAD)
    shutil.rmtree(tmp_path / "mnist_pruning" / "final-papers-2.0")
    write_workdir(
        tmp_path / "mnist_pruning" / "final-papers-2.0", [START, [30.0, 31.0, 32.0], [30.0, 31.0, 32.0]], p=2.0
    )
    pruning_table.make(tmp_path / "mnist_pruning")
    finding = pruning.accuracy(results)
    assert answers(finding) == ("mixed", "no")
    assert finding.as_stated.number.startswith("error 7.50 ± ")  # the one nearer to the claim


@pytest.mark.parametrize(
    ("errors", "expected"),
    [([5.1, 6.1, 5.3], ("yes", "no")), ([25.1, 15.0, 20.2], ("no", "yes")), ([35.0, 36.0, 35.5], ("no", "no"))],
)
def test_optimal_transport_is_compared_with_the_relaxed_operators(tmp_path, errors, expected):
    annealed = [25.0, 15.0, 20.4]
    results = pruned(tmp_path, papers=[5.0, 6.2, 5.3], annealed=annealed, ot=errors)
    finding = pruning.optimal_transport(results)
    assert answers(finding) == expected
    assert finding.measured[-1].name == "minus hard top-k"
    assert finding.measured[0].mean == pytest.approx(sum(errors) / 3 - 5.5)


@pytest.mark.parametrize(
    ("variant", "top3", "expected"),
    [
        ("small", 70.0, ("not possible here", "yes")),
        ("", 70.0, ("yes", None)),
        ("", 50.0, ("no", None)),
    ],
)
def test_fine_tuning_of_a_stand_in_is_not_as_stated(tmp_path, variant, top3, expected):
    directory = tmp_path / "cifar100_vit"
    for name, level in (("xent", 60.0), ("topk", top3)):
        accuracies = {k: [level + seed / 10 + (seed * k) % 2 for seed in range(3)] for k in (1, 3, 5, 10)}
        write_fine_tuning(directory / name, accuracies, variant, loss__name=name, split="test")
    fine_tuning_table.make(directory)
    finding = fine_tuning.accuracy(tmp_path)
    assert answers(finding) == expected
    assert finding.on == ("stand-in" if variant else "paper's task")
    assert len(finding.measured) == 1


def on_features(results, papers, own, form="features", name="cifar100_pretrained"):
    """Cross-entropy with 60 % at every k at the paper's rates, 70 % at its own, and top-3 losses so far ahead of it."""
    directory = results / name
    for folder, level, losses in (("paper/", 60.0, papers), ("final-", 70.0, own)):
        for name, ahead in {"xent": 0.0, "topk": losses}.items():
            accuracies = {k: [level + ahead + seed / 10 * (k % 2) for seed in range(3)] for k in range(1, 11)}
            # Of ten images; where a loss is ahead, on two more the label comes first.
            ranks = [[0] * (6 + 2 * (ahead > 0)) + [10] * (4 - 2 * (ahead > 0))] * 3
            write_fine_tuning(directory / f"{folder}{name}", accuracies, f"{form},loss={name}", ranks=ranks)
    fine_tuning_table.make(directory)
    return directory


@pytest.mark.parametrize(
    ("papers", "own", "expected", "words"),
    [
        (9.0, -1.0, ("yes", "no"), ("ahead of", "behind")),
        (-9.0, 40.0, ("no", "yes"), ("behind", "ahead of")),
        (0.0, 0.0, ("no", "no"), ("not clearly apart from",) * 2),
    ],
)
def test_on_features_the_claim_is_read_at_the_papers_rates_and_at_each_its_own(tmp_path, papers, own, expected, words):
    directory = on_features(tmp_path, papers, own)
    finding = fine_tuning.accuracy(tmp_path)
    assert answers(finding) == expected
    assert (finding.as_stated.number, finding.tuned.number) == (
        f"accuracy {abs(papers):.2f} ± 0.00 {'lower' if papers < 0 else 'higher'}",
        f"accuracy {abs(own):.2f} ± 0.00 {'lower' if own < 0 else 'higher'}",
    )
    lines = verdict.lines(json.loads((directory / "table.json").read_text()))
    for line, where, word in zip(lines, map(str.capitalize, fine_tuning.BLOCKS.values()), words, strict=False):
        assert f"{where}, top-3, p = 2, the paper's: **{word} cross-entropy**" in line
    # The interval over ten images is 26 points.
    found = "top-3, p = 2, the paper's (+40.00 ± 0.00 / 26.13)" if own == 40 else "none"
    assert f"- Ahead of tuned cross-entropy in top-5 by more than both intervals: {found}." in lines


def test_a_reversal_where_the_last_block_is_trained_makes_it_mixed(tmp_path):
    on_features(tmp_path, 9.0, -1.0)
    assert answers(fine_tuning.accuracy(tmp_path)) == ("yes", "no")
    on_features(tmp_path, -2.0, 3.0, "last_block", "cifar100_last_block")
    finding = fine_tuning.accuracy(tmp_path)
    assert answers(finding) == ("mixed", "mixed")
    assert finding.as_stated.number == "+9.00 head, -2.00 last block"
    assert [round(number.mean, 6) for number in finding.measured] == [9.0, -2.0, -1.0, 3.0]


def test_a_suite_on_features_that_goes_on_answers_nothing_yet(tmp_path):
    head, last_block = (tmp_path / name for name in ("cifar100_pretrained", "cifar100_last_block"))
    on_features(tmp_path, 9.0, -1.0)
    whole = fine_tuning.accuracy(tmp_path)
    on_features(tmp_path, -2.0, 3.0, "last_block", last_block.name)
    with_last_block = fine_tuning.accuracy(tmp_path)
    for directory, left in ((last_block, whole), (head, None)):
        for missing in ("paper", "final-topk"):
            table = json.loads((directory / "table.json").read_text())
            cut = {
                "paper": {name: rows for name, rows in table.items() if name != "final_at_paper_rates"},
                "final-topk": table | {"final": table["final"][:1]},  # cross-entropy alone
            }
            write_json(directory / "table.json", cut[missing])
            assert fine_tuning.accuracy(tmp_path) == left
            assert "Ahead of tuned cross-entropy" in verdict.lines(cut[missing])[-1]
            write_json(directory / "table.json", table)
        assert fine_tuning.accuracy(tmp_path) == with_last_block


def solved(pav, dykstra):
    """The times of two sizes."""
    return [
        {"way": way, "n": n, "k": n // 10, "lam": 1.0, "median_ms": milliseconds}
        for n in (100, 1000)
        for way, milliseconds in (("PAV", pav), ("Dykstra, 100 iterations", dykstra))
    ]


def off_by(errors):
    """The errors of two sizes, by lam."""
    ways = {"PAV": 0.0, "Dykstra, 100 iterations": 1.0}
    return [
        {"way": way, "n": n, "k": n // 10, "lam": lam, "max_abs_error": factor * error}
        for n in (100, 1000)
        for way, factor in ways.items()
        for lam, error in errors.items()
    ]


def test_solvers_are_judged_on_accelerators_where_there_are_some(tmp_path):
    write_bench(tmp_path, "isotonic-cpu.json", rows=solved(1.0, 2.0))
    finding = solvers.runtime(tmp_path)
    assert answers(finding) == ("not possible here", "no")
    assert [(number.name, number.mean) for number in finding.measured] == [("n = 100", 2.0), ("n = 1,000", 2.0)]
    write_bench(tmp_path, "isotonic-tpu.json", rows=solved(2.0, 1.0))
    assert answers(solvers.runtime(tmp_path)) == ("yes", None)
    assert solvers.runtime(tmp_path).on == "TPU v9"


def test_convergence_is_judged_at_the_papers_lam_and_at_those_in_use(tmp_path):
    write_bench(tmp_path, "exactness-cpu.json", rows=off_by({0.1: 1e-7, 1.0: 0.3}))
    assert answers(solvers.convergence(tmp_path)) == (None, "no")
    write_bench(tmp_path, "exactness-cpu.json", rows=off_by({1e-4: 1e-7, 0.01: 0.5, 0.1: 1e-7, 1.0: 0.3}))
    finding = solvers.convergence(tmp_path)
    assert answers(finding) == ("yes", "no")
    assert (finding.as_stated.number, finding.tuned.number) == ("at 2 of 2 sizes", "in 2 of 4 cases, lam from 0.1")
    assert [number.mean for number in finding.measured] == [1e-7, 0.5, 1e-7, 0.3]


@pytest.mark.parametrize(
    ("name", "size", "extra", "expected"),
    [
        ("losses-tpu.json", 384, 1.001, ("yes", None)),
        ("losses-tpu.json", 384, 1.03, ("no", None)),
        ("losses-tpu.json", 32, 1.001, ("not possible here", "yes")),
        ("losses-cpu.json", 384, 1.001, ("not possible here", "yes")),
    ],
)
def test_overheads_are_held_to_the_papers(tmp_path, name, size, extra, expected):
    losses = {loss: {"one_plus_extra_over_step": extra} for loss in fine_tuning.PAPER_OVERHEAD}
    write_bench(tmp_path, name, losses=losses, settings={"variant": "B/16", "size": size})
    assert answers(fine_tuning.step_times(tmp_path)) == expected


def test_without_results_nothing_is_claimed(tmp_path):
    findings = [claim.find(tmp_path) for claim in CLAIMS if claim.find.__module__ != operators.__name__]
    assert len(findings) >= 10
    assert set(findings) == {None}


def test_operators_are_as_their_readme_says():
    found = {
        find.__name__: find(Path())
        for find in (claim.find for claim in CLAIMS)
        if find.__module__ == operators.__name__
    }
    expected = {"sparsity": ("yes", None), "smoothness": ("no", None), "error_bound": ("yes", None)}
    assert {name: answers(finding) for name, finding in found.items()} == expected | {"loss_is_bounded": ("no", "yes")}
    assert found["smoothness"].as_stated.number == "gradient jumps by 1.67"
    assert "1.67" in (ROOT / "ops" / "README.md").read_text()
    rows = [readme.claim_row(claim, found[claim.find.__name__]) for claim in CLAIMS if "ops/README.md" in claim.pages]
    assert len(rows) == 4
    assert set(rows) <= set((ROOT / "README.md").read_text().splitlines())


def test_claims_point_to_what_there_is():
    for claim in CLAIMS:
        assert all((ROOT / page).exists() for page in claim.pages)
        assert not claim.config or (ROOT / claim.config).exists()
        computed = claim.find.__module__ == operators.__name__
        finding = None if computed else claim.find(ROOT / "results")
        if claim.figure and (computed or finding):
            assert (ROOT / "results" / claim.figure).exists()
        if finding:
            assert finding.plain.endswith(".")
            assert finding.unit
            assert finding.measured
