"""The fuzz itself: what is planted is found, and a short run with a fixed seed."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from scripts.fuzz import calls, draw, entries, report, run
from scripts.fuzz.__main__ import main
from scripts.fuzz.operators import OPERATORS
from scripts.fuzz.setting import LAYOUTS, Setting, as_rows, generator, read, write

SPARSEMAX = Setting("sparsemax", n=6, rows=32)
MASK = Setting("topk_mask", n=4, rows=32)


def rows_of(setting, seed=0):
    return entries.draw(setting, generator(seed, 0, 0))


def planted(monkeypatch, name, wrong):
    """Makes an operator of ``ops`` return ``wrong`` of its first argument and of what it returned."""
    right = getattr(ops, name)
    monkeypatch.setattr(ops, name, lambda x, *args, **options: wrong(x, right(x, *args, **options)))


def failing(monkeypatch, error):
    """Makes ``ops.sparsemax`` raise ``error``, and returns the one failure that is reported."""

    def operator(*args, **options):
        raise error

    monkeypatch.setattr(ops, "sparsemax", operator)
    (failure,) = run.try_setting(SPARSEMAX, batches=1, seed=0, config=0).failures
    return str(failure)


def test_right_operators_are_right():
    outcome = run.try_setting(SPARSEMAX, batches=2, seed=0, config=0)
    assert outcome.tried == 64
    assert outcome.judged["value"] > 55
    assert outcome.judged["d/dx"] > 40
    assert not outcome.failures
    assert 0 < outcome.ratio["value"] < 0.5  # of what is let off
    assert 0 < outcome.units["value"] < 8


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("value", lambda x, y: jnp.where(x > 0.5, y * 1.00001, y)),
        ("value is NaN", lambda x, y: jnp.where(x > 2.5, jnp.nan, y)),
        ("d/dx", lambda x, y: y + 1e-3 * (x - jax.lax.stop_gradient(x))),
        ("d/dx is NaN", lambda x, y: y + jnp.where(x > 0, jnp.sqrt(x * 0), 0)),
    ],
)
def test_a_planted_fault_is_reported_with_a_line_that_reproduces_it(monkeypatch, capsys, fault, wrong):
    planted(monkeypatch, "sparsemax", wrong)
    outcome = run.try_setting(SPARSEMAX, batches=1, seed=0, config=0)
    found = [failure for failure in outcome.failures if fault in str(failure)]
    assert found
    assert main([f"--problem={found[0].line}"]) == 1
    printed = capsys.readouterr().out
    assert "1 wrong of 1 problems" in printed
    assert found[0].line in printed
    assert fault in printed
    if fault == "value":
        monkeypatch.undo()
        assert main([f"--problem={found[0].line}"]) == 0


def test_an_operator_that_dies_is_reported(monkeypatch):
    assert failing(monkeypatch, TypeError("no such thing\nand more")) == "TypeError: no such thing"


def test_refusing_is_right_only_beyond_the_range(monkeypatch):
    assert failing(monkeypatch, ValueError("x must be small")) == "refused: x must be small"
    line = "sparsemax n=2 rows=4 x=1e35,2 cotangent=1,1"
    assert not run.try_problem(line).failures


def test_passes_are_those_of_the_solver():
    outcome = run.try_setting(MASK, batches=1, seed=2, config=0)
    rows = rows_of(MASK, seed=2)
    assert len(outcome.passes) == (rows.lam > 0).sum() < MASK.rows
    most, line = outcome.slowest
    assert most == max(outcome.passes) > min(outcome.passes) > 0
    alone = as_rows(*read(line))
    assert set(calls.passes_of(MASK, alone)) == {most}
    printed = list(report.lines([outcome], most=1))
    assert f"(worst {most})" in printed[2]
    assert f"most passes, {most}: python -m scripts.fuzz --problem='{line}'" in printed


def test_operators_without_a_scalar_equation_have_no_passes():
    assert not calls.passes_of(SPARSEMAX, rows_of(SPARSEMAX)).size


def test_numbers_too_small_to_be_normal_may_be_taken_for_0():
    line = "topk_mask n=2 rows=4 x={} k=1 lam=0 cotangent=1,1"
    outcome = run.try_problem(line.format("0,1e-40"))
    assert outcome.beyond == 1
    assert not outcome.failures  # whether the first comes first or the larger one
    assert not run.try_problem(line.format("0,1e-30")).beyond


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_comes_back_as_rows(layout):
    setting = Setting("topk_mask", n=3, rows=4, layout=layout)
    values = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(calls.gather(setting, calls.lay_out(setting, values)), values)
    np.testing.assert_array_equal(calls.gather(setting, calls.lay_out(setting, values[:, 0])), values[:, :1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_a_line_says_every_number_to_the_last_bit(dtype):
    setting = Setting("topk_mag", n=7, rows=32, dtype=dtype, p=1.1, debias=True, where=True)
    rows = rows_of(setting)
    for row in range(setting.rows):
        again, data = read(write(setting, rows, row, "row=0"))
        assert again == setting
        for name in ("x", "k", "lam", "cotangent"):
            wanted = np.atleast_1d(getattr(rows, name)[row])
            assert data[name].dtype == wanted.dtype
            np.testing.assert_array_equal(data[name][0].astype(np.float64), wanted.astype(np.float64))


def test_long_rows_are_named_by_their_seed():
    setting = Setting("topk_mask", n=100, rows=16)
    rows = rows_of(setting, seed=5)
    line = write(setting, rows, 3, "seed=5 config=0 batch=0 row=3")
    assert line == "topk_mask n=100 rows=16 seed=5 config=0 batch=0 row=3"
    again, data = read(line)
    redrawn = entries.draw(again, generator(data["seed"], data["config"], data["batch"]))
    np.testing.assert_array_equal(redrawn.x[3], rows.x[3])


def test_what_is_drawn():
    rows = rows_of(Setting("topk_mask", n=8, rows=4096))
    size = np.abs(rows.x[np.isfinite(rows.x) & (rows.x != 0)])
    near = np.array([kind != entries.BEYOND for kind in rows.kinds])
    assert set(entries.KINDS) <= set(rows.kinds)
    assert size.min() < 1e-30
    assert size.max() > 1e30
    assert 0.9 < near.mean() < 0.99
    assert (rows.lam == 0).mean() > 0.03
    assert rows.lam[near & (rows.lam > 0)].min() < 1e-11
    assert rows.lam[near].max() > 1e11
    assert np.isnan(rows.x).any()
    assert np.isinf(rows.x).any()
    assert ((rows.k > 0) & (rows.k < 0.01)).any()
    for k in (0, 1, 8):
        assert (rows.k == k).any()
    assert rows.k.max() == 8


def test_a_plan_has_every_operator_and_enough_problems():
    planned = draw.plan(seed=0, count=100_000, only=None)
    assert 140 <= len(planned) <= 160
    assert {setting.operator for setting, _ in planned} == set(OPERATORS)
    assert 100_000 <= sum(setting.rows * batches for setting, batches in planned) < 110_000
    assert {setting.dtype for setting, _ in planned} == {"float32", "float64", "bfloat16", "float16"}
    assert {setting.layout for setting, _ in planned} == set(LAYOUTS)
    assert {2.0, 4 / 3} < {setting.p for setting, _ in planned}
    assert min(setting.p for setting, _ in planned) < 1.1
    assert planned == draw.plan(seed=0, count=100_000, only=None)
    assert planned != draw.plan(seed=1, count=100_000, only=None)


def test_the_command(tmp_path, capsys):
    report = tmp_path / "report.json"
    status = main(["--count=8", "--only=sparsemax", "--jobs=1", "--seed=0", f"--out={report}"])
    printed = capsys.readouterr().out
    document = json.loads(report.read_text())
    assert status == 0
    assert document["all"]["wrong"] == 0
    assert document["operators"]["sparsemax"]["tried"] >= 8
    assert "[1/1] sparsemax" in printed
    assert "0:00 left" in printed
    assert printed.splitlines()[-1] == f"0 wrong of {document['all']['tried']} problems"
    assert f"the report is in {report}" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count=0"], "must be at least 1, got 0"),
        (["--only=softmax"], "--only=softmax is not allowed"),
        (["--problem=topk_mask n=3 x"], "words of the form name=value"),
        (["--problem=topk_mask n=3 y=1"], "a problem has no 'y'"),
        (["--problem=softmax n=3 x=1,2,3 cotangent=1,1,1"], "softmax"),
    ],
)
def test_bad_arguments_get_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


# The short form: every operator, with exponents, layouts and options of its own in which something has been wrong.
SHORT = [
    Setting("topk_mask", n=5, p=4 / 3, layout="vmap"),
    Setting("topk_mag", n=6, p=1.1, debias=True, where=True, layout="columns"),
    Setting("relaxed_topk", n=5, dtype="float64", phi="abs"),
    Setting("soft_topk", n=6),
    Setting("topk_mask", n=6, layout="several", density=True, where=True),
    Setting("topk_mag", n=6, layout="all", p=1.5),
    Setting("topk_plan", n=6, dtype="float64"),
    Setting("knapsack_mask", n=6, p=1.5, where=True),
    Setting("topk_mag_tree", n=6, density=True),
    Setting("topk_mag_tree", n=12, groups="blocks"),
    Setting("topk_mag_tree", n=12, p=1.5, groups="runs", debias=True),
    Setting("topk_mask_tree", n=6, p=1.5),
    Setting("topk_mask_tree", n=12, groups="channels"),
    Setting("hard_topk_mag_tree", n=12, groups="blocks", density=True),
    Setting("hard_topk_mask_tree", n=6),
    Setting("relaxed_topk_value", n=5, p=1.5, phi="half_square"),
    Setting("topk_fenchel_young_loss", n=6, dtype="bfloat16", p=1.5, target="smooth", layout="middle"),
    Setting("topk_sum", n=5, where=True),
    Setting("sparsemax", n=6),
    Setting("soft_sort", n=4),
    Setting("soft_rank", n=4, p=1.5),
    Setting("project_permutahedron", n=5),
    Setting("hard_topk_mask", n=8),
    Setting("hard_topk_mag", n=8, where=True),
]


@pytest.mark.parametrize("config", range(len(SHORT)), ids=lambda config: f"{SHORT[config].operator}-{config}")
def test_short_run(monkeypatch, config):
    monkeypatch.setattr(calls, "passes_of", lambda *_: np.zeros(0, np.int32))  # a compilation of its own
    setting = SHORT[config]
    outcome = run.try_setting(setting, batches=2, seed=0, config=config)
    assert outcome.judged["value"] > 0.9 * outcome.tried
    for name in OPERATORS[setting.operator].arguments:
        assert outcome.judged[f"d/d{name}"] > 0.3 * outcome.tried
    assert [f"{failure} of {failure.line}" for failure in outcome.failures] == []


def test_the_short_run_has_every_operator():
    assert {setting.operator for setting in SHORT} == set(OPERATORS)
