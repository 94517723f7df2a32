"""Why the paper's lam fails: the step of a pair, and the table of what the paper leaves open."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.mnist_pruning.suite.why import why as runs_of_suite

import ops
from experiments.mnist_pruning.report import naming, table, why
from tests.scripts.workdirs import write_workdir

START = [90.0, 90.0]


@pytest.mark.parametrize("lam", [1e-3, 0.1])
def test_the_step_of_a_pair_is_the_operators(lam):
    # Two that tie at the threshold, and one above it, which has a step as without pruning.
    w, pull = jnp.array([1.0, 1.0, 3.0]), jnp.array([0.7, -0.3, 0.5])
    _, back = jax.vjp(lambda w: ops.topk_mag(w, 2, lam=lam, debias=True), w)
    (gradient,) = back(pull)
    apart = 0.01 * (gradient[0] - gradient[1]) / 2
    assert float(apart) == pytest.approx(why.pair_step(lam, 0.01) * float(pull[0] - pull[1]), rel=0.15)
    assert float(gradient[2]) == pytest.approx(0.5)


def test_momentum_and_scale_multiply_the_step():
    velocity, steps = 0.0, []
    for _ in range(200):
        velocity = 0.9 * velocity + 0.1 * why.pair_step(1e-4, 0.01)
        steps.append(velocity)
    assert steps[-1] == pytest.approx(why.pair_step(1e-4, 0.01, momentum=0.9, scale=0.1), rel=1e-6)
    assert why.pair_step(1e-4, 0.01) == pytest.approx(50.0)
    assert len(why.step_of_a_pair().axes[0].get_lines()) == 5


def test_variants_of_the_operator_are_compared_with_hard_top_k_of_the_first(tmp_path):
    names = {run.name: run for run in runs_of_suite()}
    errors = {"as-elsewhere-hard": [10.0, 12.0], "as-elsewhere-p2": [60.0, 70.0], "momentum-0-9-hard": [20.0, 20.0]}
    errors |= {"momentum-0-9-p2": [80.0, 90.0], "weights-times-the-mask-of-w-p2": [11.0, 14.0]}
    for name, final in errors.items():
        fields = {key.replace(".", "__"): value for key, value in names[f"why/{name}"].base.items()}
        write_workdir(tmp_path / "why" / name, [START, final], **(fields | {"seeds": (0, 1)}))
    runs, problems = naming.load(tmp_path)
    assert not problems
    table.make(tmp_path)
    rows = {row["variant"]: row for row in why.measure(runs)["why"]}
    assert list(rows) == ["as elsewhere", "momentum 0.9", "weights times the mask of |w|"]
    assert [row["minus_hard"]["mean"] for row in rows.values()] == pytest.approx([54.0, 65.0, 1.5])
    text = (tmp_path / "table.md").read_text()
    assert "| momentum 0.9 | 2 | 20.00 ± 0.00 | 85.00 ± " in text
    assert "### Test" not in text
    assert np.isfinite(rows["momentum 0.9"]["train_density"]["mean"])


def test_a_variant_that_trains_in_full_is_compared_by_medians_with_the_hard_top_k_that_does_so(tmp_path):
    base = {run.name: run.base for run in runs_of_suite()}["why/lam-times-the-number-of-weights-in-full-p2"]
    fields = {key.replace(".", "__"): value for key, value in base.items()} | {"seeds": (0, 1, 2)}
    ours = [9.0, 9.5, 40.0]
    write_workdir(tmp_path / "why/lam-times-the-number-of-weights-in-full-p2", [ours, ours, ours], **fields)
    write_workdir(tmp_path / "final-hard", [ours, ours, [12.0, 12.5, 13.0]], method="hard")
    write_workdir(tmp_path / "final-tuned-hard", [ours, ours, ours], method="hard", optimizer__learning_rate=0.1)
    write_workdir(tmp_path / "why/as-elsewhere-hard", [ours, ours], method="hard")
    table.make(tmp_path)
    assert "| 12.50, 9.50 | 2 of 3 | 10.00 | 3 | 0 |" in (tmp_path / "table.md").read_text()
    first, second = why.told(why.measure(naming.load(tmp_path)[0]))
    assert "in 0 of 1 tries" in first
    assert "2 epochs: below it by the median, 9.50 against 12.50, in 2 of 3 seeds" in second
