import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.vmoe.experiment import RECIPE, routing_shape
from scripts.bench import memory, peers, programs, router, training
from scripts.bench.__main__ import main
from scripts.bench.case import compare
from scripts.bench.contestants import BOTH, FORWARD, MODES, Contestant, baselines, draw, jax_calls, operators
from scripts.bench.oracle import Reference, expected
from scripts.bench.record import hardware_name
from scripts.bench.report import lines
from scripts.bench.run import run
from scripts.bench.sizes import Case, Sizes
from scripts.bench.targets import evaluate
from scripts.bench.timing import Budget, Summary, interleave

CASE = Case(4, 60, 6)
BUDGET = Budget(seconds=0.05, fewest=3, most=8)
SIZES = Sizes(
    cases=(CASE,),
    lams=(1.0,),
    seconds=0.05,
    fewest=3,
    most=8,
    scaling=(200, 400),
    scaling_seconds=0.05,
    memory=1000,
    memory_of=(),
    programs_of=("lax.top_k",),
)


def named(*names):
    return [contestant for contestant in (*operators(), *baselines()) if contestant.name in names]


def failing(inputs):
    raise RuntimeError("no such operator\nand more")


@pytest.fixture(scope="module")
def results():
    contestants = named("topk_mask p=2", "lax.top_k", "lax.top_k mask")
    contestants.append(dataclasses.replace(contestants[0], name="huge", limit=100))
    contestants.append(dataclasses.replace(contestants[0], name="broken", prepare=failing))
    said = []
    return {**run(SIZES, contestants, said.append), "said": said}


def rows_of(results, name):
    return [row for row in results["cases"][0]["results"] if row["contestant"] == name]


def test_the_record_is_json_and_has_every_part(results):
    record = json.loads(json.dumps(results, allow_nan=False))
    assert set(record) >= {
        "seconds",
        "load_average",
        "cases",
        "scaling",
        "compilations",
        "programs",
        "memory",
        "targets",
    }
    (forward, both) = rows_of(record, "topk_mask p=2")
    assert (forward["mode"], both["mode"]) == MODES
    assert forward["max_abs_error"] < 1e-6
    assert both["relative_gradient_error"] < 1e-6
    assert forward["lower_quartile_ms"] <= forward["median_ms"] <= forward["upper_quartile_ms"]
    assert 3 <= forward["repetitions"] <= 8


def test_ratios_are_quotients_of_the_recorded_medians(results):
    for mode in MODES:
        medians = {
            row["contestant"]: row["median_ms"]
            for row in results["cases"][0]["results"]
            if "median_ms" in row and row["mode"] == mode
        }
        (row,) = (row for row in rows_of(results, "topk_mask p=2") if row["mode"] == mode)
        assert row["ratio_to"]["lax.top_k"] == medians["topk_mask p=2"] / medians["lax.top_k"]
        assert row["ratio_to"]["jaxopt box section"] is None


def test_a_mask_without_gradient_is_timed_forward_only(results):
    assert [row["mode"] for row in rows_of(results, "lax.top_k mask")] == [FORWARD]


def test_skipped_and_failed_contestants_are_recorded_with_the_reason(results):
    assert {(row["status"], row["reason"]) for row in rows_of(results, "huge")} == {
        ("skipped", "too slow: 240 entries, limit 100")
    }
    assert {(row["status"], row["reason"]) for row in rows_of(results, "broken")} == {
        ("failed", "RuntimeError: no such operator")
    }


def test_nothing_is_compiled_when_k_or_lam_change(results):
    assert set(results["compilations"].values()) == {0}


def test_equations_are_those_of_inner_programs_too():
    def function(x):
        inner = jax.jit(lambda x: jnp.sin(x) + 1)  # a call of two
        return jax.lax.while_loop(lambda x: x[0] < 1, lambda x: inner(x) * 2, x)  # of two, and of four

    assert programs.equations(jax.make_jaxpr(function)(np.zeros(2, np.float32)).jaxpr) == 1 + 3 + 4


def test_programs_are_counted_and_timed_and_held_against_what_is_aimed_at(results):
    (row,) = results["programs"]
    assert (row["program"], row["equations"]) == ("lax.top_k", 1)
    assert min(row[part] for part in ("traced_s", "lowered_s", "compiled_s")) > 0
    assert any(line.startswith("  lax.top_k") and " 1 (0." in line for line in programs.lines(results["programs"]))
    mine = row | {"program": "topk_mask p=2", "lam": "traced", "equations": 499, "compiled_s": 0.4}
    measured_ones = {"cases": [], "scaling": {"n": [1], "slope": {}}, "compilations": {}, "memory": []}
    found = evaluate(measured_ones | {"programs": [mine]})
    elsewhere = evaluate(measured_ones | {"programs": [mine]}, on_cpu=False)
    assert not any("equations" in entry["target"] or "compiled:" in entry["target"] for entry in elsewhere)
    measured = {
        entry["target"]: entry["status"] for entry in found if "traced" in entry["target"] and entry["measured"]
    }
    assert list(measured.values()) == ["PASS", "MISS"]


def test_every_stage_is_announced_with_the_time_left(results):
    assert len(results["said"]) == 4
    assert all("left" in line for line in results["said"])


def test_the_report_names_everybody(results):
    text = "\n".join(lines({**results, "peers": {"ott": {"status": "missing", "reason": "not there"}}}))
    assert "topk_mask p=2" in text
    assert "too slow" in text
    assert "peer ott is missing: not there" in text


def test_wrong_operators_and_gradients_are_caught_and_not_timed():
    (right,) = named("topk_mask p=2")

    def times(factor):
        return lambda inputs: jax_calls(lambda x: factor * right.function(x, inputs.case.k), inputs)

    def wrong_gradient(inputs):
        return {
            FORWARD: jax.jit(lambda: right.function(inputs.x, inputs.case.k)),
            BOTH: lambda: jnp.zeros_like(inputs.x),
        }

    wrong = {"too large": times(1.001), "no number": times(float("nan")), "no gradient": wrong_gradient}
    contestants = [right, *(Contestant(name, prepare, right.reference) for name, prepare in wrong.items())]
    rows = compare(CASE, contestants, BUDGET)["results"]
    assert [row["status"] for row in rows] == ["timed", "timed", *["wrong"] * 6]
    assert all("median_ms" not in row for row in rows[2:])


@pytest.mark.parametrize(
    ("reference", "k", "x", "truth"),
    [
        (Reference("mask", 2.0), 2, (0, 0.25, 0.5, 0.75, 1), (0, 0.125, 0.375, 0.625, 0.875)),
        (
            Reference("mask", 4 / 3),
            2,
            (0, 0.25, 0.5, 0.75, 1),
            (0.0023442783, 0.0561125175, 0.2534466196, 0.6880965846, 1),
        ),
        (Reference("magnitude", 2.0, debias=True), 2, (0, 0.25, -0.5, 0.75, -1), (0, 0, -1 / 6, 2 / 3, -1)),
        (
            Reference("magnitude", 4 / 3, debias=True),
            2,
            (0, 0.25, -0.5, 0.75, -1),
            (0, 0.0531125104, -0.3307721326, 0.7220432312, -1),
        ),
        (Reference("magnitude", 2.0, 0.01), 2, (-5, -2, 3, 1), (-5 / 1.01, 0, 3 / 1.01, 0)),
        (Reference("hard mask"), 2, (1, 3, 1, 0), (1, 1, 0, 0)),
        (Reference("largest"), 2, (1, 3, 2, 0), (3, 2)),
        (Reference("sorted"), 2, (1, 3, 2, 0), (0, 1, 2, 3)),
    ],
)
def test_the_oracle_gives_known_values(reference, k, x, truth):
    x = np.asarray([x], np.float32)
    np.testing.assert_allclose(expected(reference, x, k, np.ones_like(x)).output, [truth], atol=1e-9)


@pytest.mark.parametrize("reference", [c.reference for c in operators() if c.reference.kind != "hard mask"], ids=str)
def test_the_oracles_gradient_is_that_of_its_output(reference):
    inputs = draw(Case(1, 50, 7), seed=1)
    x, weights = inputs.x.astype(np.float64), inputs.weights.astype(np.float64)

    def value(x):
        return float(np.sum(expected(reference, x, 7, weights).output * weights))

    direction = np.random.default_rng(2).standard_normal(x.shape)
    step = 1e-7 * reference.lam
    slope = (value(x + step * direction) - value(x - step * direction)) / (2 * step)
    gradient = expected(reference, x, 7, weights).gradient
    assert slope == pytest.approx(np.sum(gradient * direction), rel=1e-4, abs=1e-5)


def test_missing_peers_are_recorded_and_the_others_go_on(monkeypatch):
    for module in ("jaxopt", "jaxopt.projection", "ott", "ott.tools.soft_sort"):
        monkeypatch.setitem(sys.modules, module, None)
    contestants, record = peers.load(["jaxopt", "ott"])
    assert contestants == []
    assert record["jaxopt"]["status"] == "missing"
    assert record["jaxopt"]["reason"].startswith("ModuleNotFoundError")
    assert record["entmax"]["status"] == "not wanted"


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("name", ["jaxopt", "entmax", "ott"])
def test_installed_peers_pass_the_check(name):
    contestants, record = peers.load([name])
    if record[name]["status"] != "used":
        pytest.skip(f"{name} is not installed: pip install -r requirements-bench.txt")
    for case in (CASE, Case(1, 60, 6)):
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            rows = compare(case, contestants, BUDGET)["results"]
        assert [row["status"] for row in rows] == ["timed", "timed"], rows


def test_targets_pass_and_miss():
    def case(ours, top_k):
        rows = [{"contestant": "hard_topk_mask", "median_ms": ours}, {"contestant": "lax.top_k", "median_ms": top_k}]
        return [{**row, "mode": FORWARD, "status": "timed"} for row in rows]

    growth = {"contestant": "topk_mask p=2", "n": [10, 100], "slope": {FORWARD: 1.0, BOTH: 1.3}}
    found = evaluate(
        {
            "cases": [
                {"batch": 128, "n": 1000, "k": 100, "results": case(1.0, 2.0)},
                {"batch": 1, "n": 25_088, "k": 2508, "results": case(3.0, 2.0)},
            ],
            "scaling": growth,
            "compilations": {"topk_mask, called": 1},
            "memory": [],
        }
    )
    statuses = [target["status"] for target in found if target["status"] != "not measured"]
    assert statuses == ["PASS", "MISS", "PASS", "MISS", "MISS"]


def test_slow_and_fast_functions_share_the_rounds():
    order = []
    calls = {"fast": lambda: order.append("fast"), "slow": lambda: (order.append("slow"), sum(range(3_000_000)))}
    times = interleave(calls, Budget(seconds=0.4, fewest=3, most=40))
    assert times["slow"].repetitions >= 3
    assert times["fast"].repetitions == 40
    assert times["slow"].median_ms > times["fast"].median_ms
    assert "fast" in order[order.index("slow", 3) :]


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(memory, "MODES", (BOTH,))  # each starts a process
    found = memory.measure("topk_mask p=2", 20_000)
    assert 1 <= found[BOTH]["compiled"] < 10


def test_a_file_is_named_by_the_hardware():
    machine = {"cpu": "AMD EPYC 9B14 (TM)", "cores": 2}
    cpu = {"devices": {"platform": "cpu", "kind": "cpu"}, "machine": machine}
    gpu = {"devices": {"platform": "gpu", "kind": "NVIDIA H100 80GB HBM3"}, "machine": machine}
    assert hardware_name(cpu) == "cpu-amd-epyc-9b14-tm-2c"
    assert hardware_name(gpu) == "gpu-nvidia-h100-80gb-hbm3"


def test_an_unknown_peer_is_one_clear_line(capsys):
    with pytest.raises(SystemExit) as exited:
        main(["--peers=jaxopt,softjax"])
    assert exited.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("--peers: unknown softjax; known: jaxopt, ott, entmax")


def test_the_overhead_of_a_part_is_a_ratio_of_steps_and_what_it_takes_alone():
    times = {"hard": Summary(1000.0, 900.0, 1100.0, 5), "relaxed": Summary(1100.0, 1000.0, 1200.0, 5)}
    alone = {"hard": Summary(4.0, 4.0, 4.0, 5), "relaxed": Summary(9.0, 9.0, 9.0, 5)}
    rows = training.overheads(times, alone, "hard", parts=2)
    assert rows["hard"]["ratio_of_steps"] == rows["hard"]["one_plus_extra_over_step"] == 1.0
    assert rows["relaxed"]["ratio_of_steps"] == pytest.approx(1.1)
    assert rows["relaxed"]["one_plus_extra_over_step"] == pytest.approx(1.01)
    assert training.target("x", 1.05, 1.01)["status"] == "PASS"
    assert training.target("x", 1.05, 1.06)["status"] == "MISS"


def test_the_routers_that_are_timed_solve_the_papers_problem(monkeypatch):
    for name in router.ROUTERS:
        config = router.config_of(name, 224)
        RECIPE.validate(config)
        shape = routing_shape(config)
        assert (shape.tokens, shape.k, config.moe.num_experts, len(config.moe.blocks)) == (400, 28, 32, 2)
    assert routing_shape(router.config_of("relaxed, 32 slots", 224)).capacity == 32
    # The others are these with other options.
    some = {name: router.ROUTERS[name] for name in (router.REFERENCE, "relaxed, logits", "token choice")}
    monkeypatch.setattr(router, "ROUTERS", some)
    calls = router.alone(1, 224)
    assert set(calls) == {*some, router.MASK, router.BY_TOP_K}
    assert set(router.dispatchers(1, 224)) == {router.GATHER, router.EINSUM}
