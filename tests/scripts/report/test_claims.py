"""Findings on the operators and the solvers by value; claims point to what is there."""

import json
from pathlib import Path

from scripts.report import ROOT, operators, readme, solvers
from scripts.report.claims import CLAIMS

COMPUTED = [claim for claim in CLAIMS if claim.find.__module__ == operators.__name__]


def answers(finding):
    """The two answers: at the paper's settings, and tuned."""
    return tuple(verdict and verdict.answer for verdict in (finding.as_stated, finding.tuned))


def bench(results, section, platform, rows):
    devices = {"platform": platform, "kind": "TPU v9"}
    environment = {"devices": devices, "machine": {"cpu": "Z80", "cores": 2}}
    (results / "bench").mkdir(exist_ok=True)
    machine = {section: {"environment": environment, "rows": rows}}
    (results / "bench" / f"{platform}.json").write_text(json.dumps(machine))


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
    bench(tmp_path, "isotonic", "cpu", solved(1.0, 2.0))
    finding = solvers.runtime(tmp_path)
    assert (answers(finding), finding.on) == (("not possible here", "no"), "2 cores of Z80")
    assert [(number.name, number.mean) for number in finding.measured] == [("n = 100", 2.0), ("n = 1,000", 2.0)]
    bench(tmp_path, "isotonic", "tpu", solved(2.0, 1.0))
    finding = solvers.runtime(tmp_path)
    assert (answers(finding), finding.on) == (("yes", None), "TPU v9")


def test_convergence_is_judged_at_the_papers_lam_and_at_those_in_use(tmp_path):
    bench(tmp_path, "exactness", "cpu", off_by({0.1: 1e-7, 1.0: 0.3}))
    assert answers(solvers.convergence(tmp_path)) == (None, "no")
    bench(tmp_path, "exactness", "cpu", off_by({1e-4: 1e-7, 0.01: 0.5, 0.1: 1e-7, 1.0: 0.3}))
    finding = solvers.convergence(tmp_path)
    assert answers(finding) == ("yes", "no")
    assert (finding.as_stated.number, finding.tuned.number) == ("at 2 of 2 sizes", "in 2 of 4 cases, lam from 0.1")
    assert [number.mean for number in finding.measured] == [1e-7, 0.5, 1e-7, 0.3]


def test_operators_are_as_their_readme_says():
    found = {claim.find.__name__: claim.find(Path()) for claim in COMPUTED}
    assert {name: answers(finding) for name, finding in found.items()} == {
        "sparsity": ("yes", None),
        "smoothness": ("no", None),
        "error_bound": ("yes", None),
        "loss_is_bounded": ("no", "yes"),
    }
    assert found["smoothness"].as_stated.number == "gradient jumps by 1.67"
    assert "1.67" in (ROOT / "ops" / "README.md").read_text()
    rows = {readme.claim_row(claim, found[claim.find.__name__]) for claim in COMPUTED}
    assert rows <= set((ROOT / "README.md").read_text().splitlines())


def test_without_results_nothing_is_claimed(tmp_path):
    findings = [claim.find(tmp_path) for claim in CLAIMS if claim not in COMPUTED]
    assert len(findings) >= 10
    assert set(findings) == {None}


def test_claims_point_to_what_there_is():
    for claim in CLAIMS:
        assert all((ROOT / page).exists() for page in claim.pages)
        assert (ROOT / claim.config).exists()
        assert not claim.figure or (ROOT / "results" / claim.figure).exists()
