"""Verdicts follow from the results: each rule is tried on results that meet it and on some that do not."""

import json
from pathlib import Path

import pytest

from experiments.cifar100_vit.report import claims as fine_tuning
from experiments.cifar100_vit.report import table as fine_tuning_table
from experiments.cifar100_vit.report import verdict
from experiments.core.record.files import write_json
from experiments.core.report.finding import answer, in_every_case
from experiments.vmoe.report import claims as vmoe
from experiments.vmoe.report import table as vmoe_table
from experiments.vmoe_clusters.report import claims as clusters
from experiments.vmoe_clusters.report import table as clusters_table
from scripts.report import operators, readme, solvers
from scripts.report.claims import CLAIMS
from tests.scripts.workdirs import write_clusters, write_fine_tuning, write_vmoe

ROOT = Path(__file__).resolve().parents[3]
START = [90.0, 88.0, 89.0]
GOOD, BAD = [5.0, 6.0, 5.5], [30.0, 20.0, 25.0]


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


def bench(results, name, **record):
    devices = {"platform": "cpu", "kind": "cpu"} if "cpu" in name else {"platform": "tpu", "kind": "TPU v9"}
    environment = {"devices": devices, "machine": {"cpu": "Z80", "cores": 2}}
    (results / "bench").mkdir(exist_ok=True)
    (results / "bench" / name).write_text(json.dumps({"environment": environment, **record}))


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
    bench(tmp_path, "isotonic-cpu.json", rows=solved(1.0, 2.0))
    finding = solvers.runtime(tmp_path)
    assert answers(finding) == ("not possible here", "no")
    assert [(number.name, number.mean) for number in finding.measured] == [("n = 100", 2.0), ("n = 1,000", 2.0)]
    bench(tmp_path, "isotonic-tpu.json", rows=solved(2.0, 1.0))
    assert answers(solvers.runtime(tmp_path)) == ("yes", None)
    assert solvers.runtime(tmp_path).on == "TPU v9"


def test_convergence_is_judged_at_the_papers_lam_and_at_those_in_use(tmp_path):
    bench(tmp_path, "exactness-cpu.json", rows=off_by({0.1: 1e-7, 1.0: 0.3}))
    assert answers(solvers.convergence(tmp_path)) == (None, "no")
    bench(tmp_path, "exactness-cpu.json", rows=off_by({1e-4: 1e-7, 0.01: 0.5, 0.1: 1e-7, 1.0: 0.3}))
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
    bench(tmp_path, name, losses=losses, settings={"variant": "B/16", "size": size})
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


@pytest.mark.parametrize(
    ("variant", "relaxed", "expected"),
    [("small,", 24.0, ("not possible here", "yes")), ("", 24.0, ("yes", None)), ("", 20.0, ("no", None))],
)
def test_precision_of_routers_is_judged_by_intervals(tmp_path, variant, relaxed, expected):
    for name, level in (("hard", 22.0), ("relaxed", relaxed), ("annealed", 30.0)):
        rows = [[1.0] * 3, [level + seed + (seed % 2) / 10 for seed in range(3)]]
        write_vmoe(tmp_path / "vmoe" / name, rows, f"{variant}router={name}", steps=100)
    vmoe_table.make(tmp_path / "vmoe")
    finding = vmoe.precision(tmp_path)
    assert answers(finding) == expected
    assert len(finding.measured) == 1  # an annealed router is none of the paper's
    for name, level in (("hard", 60.0), ("relaxed", 55.0)):
        rows = [[1.0] * 3, [level, level + 1, level + 2.1 + (name == "hard")]]
        write_vmoe(tmp_path / "vmoe_tokens" / name, rows, f"tokens,router={name}", steps=100)
    vmoe_table.make(tmp_path / "vmoe_tokens")
    finding = vmoe.precision(tmp_path)
    assert (answers(finding), finding.measured[0].mean) == (("not possible here", "no"), pytest.approx(-16 / 3))
    assert "100 steps" not in finding.measured[0].name
    for name, level in (("hard", 60.0), ("relaxed", 65.0)):
        rows = [[1.0] * 3, [level, level + 1, level + 2.1 + (name == "hard")]]
        write_vmoe(tmp_path / "vmoe_tokens" / f"{name}-long", rows, f"tokens,router={name}", steps=400)
    vmoe_table.make(tmp_path / "vmoe_tokens")
    finding = vmoe.precision(tmp_path)
    assert [measured.name.rpartition(", ")[2] for measured in finding.measured] == ["100 steps", "400 steps"]
    assert answers(finding) == ("not possible here", "mixed")
    assert "in 1 of 2 comparisons, and less in 1;" in finding.plain


@pytest.mark.parametrize(("relaxed", "expected"), [(4.0, "yes"), (8.0, "no")])
def test_the_gradient_through_the_mask_is_judged_by_intervals(tmp_path, relaxed, expected):
    assert clusters.gradient(tmp_path) is None
    for router, loss in (("best", 1.0), ("hard", 6.0), ("relaxed", relaxed), ("balanced", 3.0)):
        losses = [loss, loss + 1, loss + 2.1 + (router == "relaxed") / 10]
        write_clusters(tmp_path / "vmoe_clusters" / router, router, losses, [[50.0] * 3] * 3)
    clusters_table.make(tmp_path / "vmoe_clusters")
    finding = clusters.gradient(tmp_path)
    assert answers(finding) == (None, expected)
    count = int(relaxed < 6)  # the balanced plan is none of those that are judged
    assert finding.tuned.number == f"relaxed better in {count} of 1, worse in {1 - count}"
    assert finding.measured[0].mean == pytest.approx(relaxed - 6 + 0.1 / 3)


def test_the_time_of_a_relaxed_router_beside_the_papers(tmp_path):
    def routers(exact, papers):
        ratios = {"relaxed, logits": exact, "Dykstra, 10 iterations": papers}
        return {
            name: {"ratio_of_steps": ratio, "one_plus_extra_over_step": 1 + (ratio - 1) / 10}
            for name, ratio in ratios.items()
        }

    assert vmoe.step_times(tmp_path) is None
    bench(tmp_path, "router-cpu.json", routers=routers(1.01, 1.1))
    finding = vmoe.step_times(tmp_path)
    assert (answers(finding), finding.on) == (("not possible here", "no"), "2 cores of Z80")
    assert [number.mean for number in finding.measured] == pytest.approx([1.001, 1.01])  # by routers alone
    bench(tmp_path, "router-tpu.json", routers=routers(1.01, 1.6))
    finding = vmoe.step_times(tmp_path)
    assert (answers(finding), finding.as_stated.number) == (("yes", None), "1.600 times as long")
    bench(tmp_path, "router-tpu.json", routers=routers(1.01, 1.1))
    assert answers(vmoe.step_times(tmp_path)) == ("no", None)
