import dataclasses
import json
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scripts.bench import contestants, masks
from scripts.bench.contestants import BOTH, FORWARD, MODES, Shape, draw, expected
from scripts.bench.timing import Budget, Contest
from tests.ops.oracle.equation import Curve
from tests.ops.oracle.problem import problem
from tests.ops.oracle.topk import topk

SHAPE = Shape(4, 60, 6)
BUDGET = Budget(seconds=0.05, fewest=3, most=8)


def named(*names):
    return [found for found in contestants.contestants([1.0]) if found.name in names]


def failing(inputs):
    raise RuntimeError("no such operator\nand more")


@pytest.fixture(scope="module")
def rows():
    """Rows of one of ours, of what JAX offers, and of contestants that are wrong in some way."""
    compared = named("topk_mask p=2", "lax.top_k", "lax.top_k mask")
    right = compared[0]
    calls = right.prepare(draw(SHAPE))

    def with_factors(output, gradient):
        return lambda inputs: {
            FORWARD: lambda: output * calls[FORWARD](),
            BOTH: lambda: gradient * calls[BOTH]()[1],
        }

    wrong = {"too large": (1.001, 1), "no number": (np.nan, 1), "no gradient": (1, 0)}
    compared += [dataclasses.replace(right, name=name, prepare=with_factors(*its)) for name, its in wrong.items()]
    compared.append(dataclasses.replace(right, name="huge", limit=100))
    compared.append(dataclasses.replace(right, name="broken", prepare=failing))
    with pytest.MonkeyPatch.context() as patch:
        known = {}  # the references' results: most have the same
        patch.setattr(
            contestants, "expected", lambda f, *given: known.get(f) or known.setdefault(f, expected(f, *given))
        )
        measured = masks.compare(SHAPE, compared, BUDGET, Contest({"lost": "before"}))
    assert (measured["batch"], measured["n"], measured["k"]) == SHAPE
    return json.loads(json.dumps(measured["results"], allow_nan=False))


def test_timed_rows_have_errors_and_ratios(rows):
    ours = [row for row in rows if row["contestant"] == "topk_mask p=2"]
    assert [row["mode"] for row in ours] == [*MODES]
    medians = {row["mode"]: row["median_ms"] for row in rows if row["contestant"] == "lax.top_k"}
    for row in ours:
        assert row["status"] == "timed"
        assert max(row["max_abs_error"], row["relative_gradient_error"], row["relative_sum_error"]) < 1e-6
        assert row["lower_quartile_ms"] <= row["median_ms"] <= row["upper_quartile_ms"]
        assert 3 <= row["repetitions"] <= 8
        assert row["ratio_to"] == {
            "lax.top_k": row["median_ms"] / medians[row["mode"]],
            "jaxopt box section": None,
        }
    # A mask without a gradient.
    assert [row["mode"] for row in rows if row["contestant"] == "lax.top_k mask"] == [FORWARD]


def test_wrong_contestants_are_not_timed(rows):
    found = {row["contestant"]: (row["status"], row["reason"]) for row in rows if row["status"] != "timed"}
    assert found.pop("huge") == ("skipped", "too slow: 240 entries, limit 100")
    assert found.pop("broken") == ("failed", "RuntimeError: no such operator")
    assert found.keys() == {"too large", "no number", "no gradient"}
    for status, reason in found.values():
        assert status == "failed"
        assert "off by more than the tolerance" in reason
    assert all("median_ms" not in row for row in rows if row["status"] != "timed")


def test_reference_matches_the_oracle():
    inputs, operators = draw(Shape(2, 50, 7)), contestants.operators([1.0, 0.1])
    truth = topk(problem(inputs.x, 7, 1.0, 2.0, cotangent=inputs.weights), Curve("half_square"), True).wanted
    output, gradient = expected(operators["topk_mag p=2 debias"], inputs.x, 7, inputs.weights)
    assert output.dtype == np.float64
    np.testing.assert_allclose(output, truth["value"].astype(float), atol=1e-9)
    np.testing.assert_allclose(gradient, truth["x"].astype(float), atol=1e-7)
    assert operators["topk_mask p=2 lam=0.1"].keywords == {"lam": 0.1, "p": 2.0}
    assert operators["topk_mask p=4/3"].keywords == {"lam": 1.0, "p": 4 / 3}


def test_missing_peers_have_a_reason(monkeypatch):
    for module in ("jaxopt", "jaxopt.projection", "softjax", "torch", "entmax"):
        monkeypatch.setitem(sys.modules, module, None)
    found, missing = contestants.peers()
    assert found == []
    assert set(missing) == {"jaxopt", "softjax", "entmax", "torch"}
    assert all(reason.startswith("ModuleNotFoundError") for reason in missing.values())


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("name", contestants._PEERS)
def test_installed_peers_pass_the_check(name):
    try:
        peer = contestants._PEERS[name]()
    except ImportError:
        pytest.skip(f"{name} is not installed: pip install --group bench")
    for shape in (SHAPE, Shape(1, 60, 6)):
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            rows = masks.compare(shape, [peer], BUDGET, Contest())["results"]
        assert [row["status"] for row in rows] == ["timed", "timed"], rows


def test_equations_include_inner_programs():
    def function(x):
        inner = jax.jit(lambda x: jnp.sin(x) + 1)  # a call of two
        return jax.lax.while_loop(lambda x: x[0] < 1, lambda x: inner(x) * 2, x)  # of two, and of four

    assert masks.equations(jax.make_jaxpr(function)(np.zeros(2, np.float32)).jaxpr) == 1 + 3 + 4


def test_programs_and_memory_are_counted(monkeypatch):
    monkeypatch.setattr(masks, "ops", SimpleNamespace(scale=lambda x, k, lam, p: k * lam * x))  # soon compiled
    rows = masks._program("scale p=2", Contest())["programs"]
    assert [(row["lam"], row["mode"]) for row in rows] == [(way, mode) for way in ("known", "traced") for mode in MODES]
    assert [row["equations"] for row in rows][::2] == [1, 2]  # of k and lam that are traced, one more
    assert min(row[part] for row in rows for part in ("traced_s", "lowered_s", "compiled_s")) > 0
    monkeypatch.setattr(contestants, "operators", lambda lams: {"double": lambda x, k: 2 * x})  # soon compiled
    (row,) = masks._memory("double", 20_000, Contest())["memory"]
    assert row[FORWARD]["compiled"] == 1
    assert 1 <= row[BOTH]["compiled"] < 10
