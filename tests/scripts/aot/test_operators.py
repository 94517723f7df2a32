"""Every public operator is compiled, and what was compiled already is passed over."""

import json

import jax
import numpy as np
import pytest

import ops
from scripts.aot import compiler, hardware, operators, record, sweep
from scripts.aot.operators import GRADIENT, Case, Size

V5E = hardware.parse("v5litepod-8")
SMALL = Size(8, 16, 2)


def test_every_public_operator_is_there():
    public = {name for name in ops.__all__ if callable(getattr(ops, name)) and name[0].islower()}
    assert {name.split()[0] for name in operators.CALLS} == public - {"register_nonlinearity"} | {"lax.top_k"}


def test_all_shapes_types_and_places():
    found = list(operators.every(list(operators.CALLS), operators.SIZES))
    assert len({case.key for case in found}) == len(found)
    assert found[0] == Case("topk_mask", operators.SIZES[0], "float32", GRADIENT, "")
    assert {(case.dtype, bool(case.divided)) for case in found} == {
        (dtype, divided) for dtype in ("float32", "bfloat16") for divided in (False, True)
    }
    assert {case.divided for case in found if case.size.rows == 1} == {"", "entries"}
    assert {(case.size.rows, case.size.n) for case in found} == {
        *((128, 1000), (12_800, 400), (4096, 8192), (1, 25_088), (1, 10**6), (1, 10**7))
    }


def test_every_call_is_one_of_its_operator():
    """All of them traced, which their own tests do on meshes; one lowered for eight devices, with its gradient."""
    x, labels = jax.ShapeDtypeStruct((8, 16), np.float32), jax.ShapeDtypeStruct((8,), np.int32)
    for name, call in operators.CALLS.items():
        assert jax.tree.leaves(jax.eval_shape(lambda x, labels, call=call: call(x, 2, labels), x, labels)), name
    case = Case("topk_fenchel_young_loss", SMALL, "bfloat16", GRADIENT, operators.ROWS)
    assert "num_partitions = 8" in operators.lower(case, jax.devices()).as_text()


def test_of_a_case_all_is_counted():
    row = sweep.measure(Case("topk_mask", SMALL, "float32", GRADIENT, ""), V5E, jax.devices())
    assert row["compiles"]
    assert (row["operator"], row["rows"], row["n"], row["k"]) == ("topk_mask", 8, 16, 2)
    assert [loop["rounds"] for loop in row["loops"]].count(None) >= 1
    assert row["kernels_outside_loops"] > 0
    assert row["temporary_over_data"] == pytest.approx(row["temporary_bytes"] / (8 * 16 * 4), abs=1e-3)


def test_a_program_that_is_still_the_same_is_not_compiled_again(monkeypatch):
    case = Case("topk_sum", SMALL, "float32", operators.VALUE, "")
    row = sweep.measure(case, V5E, jax.devices())
    monkeypatch.setattr(sweep.compiled, "compile_", None)
    assert sweep.measure(case, V5E, jax.devices(), row) is row
    with pytest.raises(TypeError):
        sweep.measure(case, V5E, jax.devices(), row | {"program": "another"})


class Sweep:
    """Sweeps over cases of which nothing is compiled."""

    def __init__(self, tmp_path, monkeypatch):
        self.path, self.said, self.compiled = tmp_path / "tpu-v5e.json", [], []
        self.fails = {}
        monkeypatch.setattr(sweep, "measure", self.measure)

    def measure(self, case, slice_, devices, earlier):
        self.compiled.append(case.operator)
        if isinstance(self.fails.get(case.operator), BaseException):
            raise self.fails[case.operator]
        error = self.fails.get(case.operator)
        named = {"compiles": error is None, "error": error}
        return named | {"compile_seconds": 1.0, "kernels_outside_loops": 1, "loops": [], "temporary_over_data": 0.0}

    def go(self, *names, anew=False):
        self.said.clear()
        self.compiled.clear()
        chosen = [Case(name, SMALL, "float32", GRADIENT, "") for name in names]
        return sweep.go(V5E, [], chosen, self.path, ["c"], self.said.append, anew=anew)


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    return Sweep(tmp_path, monkeypatch)


def test_what_is_there_is_passed_over_until_the_code_changes(sweeps, monkeypatch):
    assert sweeps.go("topk_mask", "topk_mag") == 0
    assert sweeps.go("topk_mask", "topk_mag", "sparsemax") == 0
    assert sweeps.compiled == ["sparsemax"]
    assert "2 of 3 are in" in sweeps.said[0]
    assert "[1/1] sparsemax float32 (8, 16) value and gradient: 1.0 s" in sweeps.said[1]
    sweeps.go("topk_mask", anew=True)
    assert sweeps.compiled == ["topk_mask"]
    monkeypatch.setattr(record, "digest", lambda *packages: "other")
    sweeps.go("topk_mask")
    assert sweeps.compiled == ["topk_mask"]
    assert len(json.loads(sweeps.path.read_text())["operators"]["cases"]) == 3  # nothing is lost


def test_a_failure_is_a_result(sweeps):
    sweeps.fails["topk_mag"] = "CompileTimeScopedVmemOom"
    assert sweeps.go("topk_mag", "topk_mask") == 1
    assert "FAILS: CompileTimeScopedVmemOom" in sweeps.said[0]
    assert sweeps.go("topk_mag", "topk_mask") == 1  # and is one still
    assert sweeps.compiled == []


def test_a_case_that_ends_the_process_is_left_after_two_attempts(sweeps):
    attempt = sweeps.path.with_suffix(".attempt")
    case = Case("topk_mag", SMALL, "float32", GRADIENT, "")
    attempt.write_text(f"{case.key} 1")
    sweeps.go("topk_mag")
    assert sweeps.compiled == ["topk_mag"]  # it may have been something else
    assert not attempt.exists()
    attempt.write_text(f"{case.key} 2")
    assert sweeps.go("topk_mag", "topk_mask", anew=True) == 1
    assert sweeps.compiled == ["topk_mask"]
    assert "the compiler ended the process" in sweeps.said[0]


@pytest.mark.skipif(not compiler.available("tpu"), reason="libtpu is not installed: make check-accelerators")
@pytest.mark.parametrize("size", [Size(128, 1000, 100), Size(1, 25_088, 2508)])
def test_tpus_compiler_takes_the_mask(size):
    compiler.prepare(V5E)
    devices = compiler.devices(V5E)
    for name in ("topk_mask", "topk_mag"):
        row = sweep.measure(Case(name, size, "float32", GRADIENT, ""), V5E, devices)
        assert row["compiles"], row["error"]
        assert row["kernels_outside_loops"] > 0
