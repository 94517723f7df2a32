"""Findings on times by value, and what the command prints."""

import pytest

from experiments.core.report import making
from scripts.report import __main__ as report
from scripts.report import benchmarks, claims, operators
from scripts.report.claims import CLAIMS
from tests.scripts.workdirs import answers, write_bench

COMPUTED = [claim for claim in CLAIMS if claim.find.__module__ == operators.__name__]


@pytest.mark.parametrize(
    ("platform", "size", "extra", "expected"),
    [
        ("tpu", 384, 1.03, ("does not hold", None)),
        ("tpu", 224, 1.001, ("not possible here", "holds")),
        ("cpu", 384, 1.03, ("not possible here", "does not hold")),
    ],
)
def test_loss_claims_depend_on_hardware(tmp_path, platform, size, extra, expected):
    """Judges the claim as stated only on an accelerator at the paper's size."""
    losses = {f"top-3, p = {p}": {"one_plus_extra_over_step": extra} for p in ("2", "4/3")}
    write_bench(tmp_path, "losses", platform, settings={"variant": "B/16", "size": size}, losses=losses)
    assert answers(benchmarks.losses(tmp_path)) == expected


@pytest.mark.parametrize(
    ("platform", "papers", "expected", "most"),
    [("cpu", 1.1, ("not possible here", "does not hold"), 1.01), ("tpu", 1.6, ("holds", None), 1.6)],
)
def test_router_claims_depend_on_hardware(tmp_path, platform, papers, expected, most):
    """Compares whole steps on accelerators and routers alone on CPUs."""
    routers = {
        name: {"ratio_of_steps": ratio, "one_plus_extra_over_step": 1 + (ratio - 1) / 10}
        for name, ratio in {"relaxed, logits": 1.01, "Dykstra, 10 iterations": papers}.items()
    }
    write_bench(tmp_path, "router", platform, routers=routers)
    finding = benchmarks.routers(tmp_path)
    assert answers(finding) == expected
    assert (finding.as_stated if platform == "tpu" else finding.tuned).told.endswith(f"{most:.3f} times as long")


def test_command_prints_a_line_per_claim(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(claims, "CLAIMS", tuple(claim for claim in CLAIMS if claim not in COMPUTED))
    assert making.on_directory("report", "", report.make, [str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("| not measured |") == len(claims.CLAIMS)
    assert making.on_directory("report", "", report.make, [str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a directory" in capsys.readouterr().err
