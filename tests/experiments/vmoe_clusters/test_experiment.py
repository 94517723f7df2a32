"""The task under the trainer: what the best assignment reaches, what stays as it is, and mistakes in the config."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.vmoe_clusters import get_config
from experiments.core.errors import UsageError
from experiments.core.record import metrics
from experiments.core.training import train
from experiments.vmoe_clusters.experiment import RECIPE, build, load
from tests.experiments.support import set_fields

TINY = {
    "task.tokens": 12,
    "task.experts": 6,
    "task.width": 8,
    "task.outputs": 4,
    "task.groups": 8,
    "router.capacity": 0,
    "steps": 40,
    "steps_per_dispatch": 20,
    "eval_every": 20,
    "checkpoint_every": 40,
    "optimizer.warmup_steps": 4,
    "seeds": (0, 1),
}


def tiny_config(router="hard", **fields):
    """Six experts of four tokens each; `fields` by name, with `__` for the dots."""
    config = get_config(f"router={router}")
    set_fields(config, fields, TINY)
    return config


def experiment(config):
    return build(config, load(config))


def solution(params, scale):
    """The router of the true centres, sharp without noise, and experts that have learned their maps."""
    problem = params["problem"]
    return params | {"router": scale * problem["centres"].T, "experts": np.float32(2**0.5) * problem["maps"]}


def test_true_solution_explains_everything():
    """Noise hides part of the assignment from the hard router, and none from the best one."""
    clear = tiny_config(task__noise=0.0)
    examples = load(clear).evaluation
    made = {name: experiment(tiny_config(name, task__noise=0.5)) for name in ("best", "hard")} | {"": experiment(clear)}

    @jax.jit
    def evaluated(key):
        params = made[""].init(key)  # of all three
        return {
            name: one.evaluate(solution(params, 1.0 if name else 10.0), examples, 1.0) for name, one in made.items()
        }

    found = jax.device_get(evaluated(jax.random.key(0)))
    assert found[""]["test_loss"].mean() < 1e-3  # percent
    for metric in ("test_recovery", "test_reachable"):
        assert found[""][metric] == pytest.approx(100)
    assert found[""]["test_router"]["experts_per_token_mean"].mean() == pytest.approx(2)
    assert found["best"]["test_recovery"] == pytest.approx(100)
    np.testing.assert_allclose(found["hard"]["test_recovery"], found["hard"]["test_reachable"])
    np.testing.assert_allclose(found["best"]["test_reachable"], found["hard"]["test_reachable"])
    assert 40 < found["hard"]["test_recovery"] < 95
    assert found["best"]["test_loss"].mean() < found["hard"]["test_loss"].mean()


def test_a_run_learns_the_assignment(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    length = dict.fromkeys(("steps", "steps_per_dispatch", "eval_every", "checkpoint_every"), 400)
    train.run(RECIPE, tiny_config(task__noise=0.1, **length), tmp_path)
    start, end = metrics.read(tmp_path / "metrics.jsonl")
    assert min(start["test_loss"]) > 80
    assert max(end["test_loss"]) < 40
    assert min(np.array(end["test_recovery"]) - start["test_recovery"]) > 3
    assert end["test_reachable"] == start["test_reachable"]
    assert start["test_loss"][0] != start["test_loss"][1]  # every seed has a problem of its own


def test_the_problem_is_not_learned():
    made = experiment(tiny_config(optimizer__warmup_steps=0))

    @jax.jit
    def update(key):
        params = made.init(key)
        return made.optimizer.update(jax.tree.map(jnp.ones_like, params), made.optimizer.init(params), params)[0]

    with jax.numpy_dtype_promotion("standard"):
        change = update(jax.random.key(0))
    sizes = jax.tree.map(lambda leaf: float(np.abs(leaf).min()), change)
    assert sizes["problem"] == {"centres": 0, "maps": 0}
    assert min(sizes["router"], sizes["experts"]) > 0.01


@pytest.mark.parametrize(
    ("router", "fields", "message"),
    [
        ("hard", {"task__experts": 0}, r"config\.task\.experts=0 .* positive"),
        ("hard", {"task__tokens": 13}, r"config\.task\.tokens=13 .* a multiple of experts / 2, experts being 6"),
        ("hard", {"task__tokens": 18}, r"config\.task\.tokens=18 .* at most the 15 pairs"),
        ("hard", {"task__width": 5}, r"config\.task\.width=5 .* at least the 6 experts"),
        ("relaxed", {"router__capacity": 13}, r"config\.router\.capacity=13 .* in \[0, 12\]"),
        ("relaxed", {"router__capacity": 3}, r"config\.router\.capacity=3 .* at least k=4"),
        ("balanced", {"router__limit": 1.9}, r"config\.router\.limit=1\.9 .* at least 2: 6 experts of k=4"),
        ("balanced", {"router__hard_after": 0.5}, r"config\.router\.hard_after=0\.5 .* 1: a plan needs a lam above 0"),
    ],
)
def test_mistakes_are_named(router, fields, message):
    with pytest.raises(UsageError, match=message):
        RECIPE.validate(tiny_config(router, **fields))
