"""Each method trains, at the density that it says."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import mnist_pruning
from experiments.core import config_file
from experiments.core.config import require
from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.kinds import dotted
from experiments.core.record import metrics
from experiments.core.training import train
from experiments.mnist_pruning import report
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.methods import KINDS, METHODS
from experiments.mnist_pruning.methods.masks import MASKS
from experiments.mnist_pruning.methods.method import PruningMethod, by_number
from experiments.mnist_pruning.methods.schedules import num_kept
from experiments.mnist_pruning.suite.__main__ import SUITE
from tests.experiments.support import ROOT, small_config
from tests.scripts.workdirs import write_workdir

SIZE = 64 * 10  # of the one layer there is, unless a test says otherwise
DENSITY = int(0.1 * SIZE) / SIZE


def rows_of(tmp_path, variant, **fields):
    train.run(RECIPE, small_config(variant, **fields), tmp_path / "w")
    return metrics.read(tmp_path / "w" / "metrics.jsonl")


def assert_exact(densities):
    assert densities == {"1": pytest.approx([DENSITY] * 2)}


# Those with other masks are compared with hard top-k below.
@pytest.mark.parametrize(
    ("variant", "fields"), [("straight_through", {"lam__start": 1.0}), ("mask_straight_through", {})]
)
def test_hard_forward_keeps_exactly_k_per_layer_all_along_and_others_learn(tmp_path, variant, fields):
    for row in rows_of(tmp_path, variant, **fields):
        assert_exact(row["train_density_per_layer"])
        assert_exact(row["hardened_density_per_layer"])
        assert row["hardened_error"] == row["test_error"]
    weights = METHODS[variant].make(small_config(variant, **fields), 1).weights
    w = jnp.linspace(-1.0, 0.9, 20)
    pull = jax.grad(lambda w: jnp.vdot(weights(w, {}, jnp.float32(0), jax.random.key(0)), jnp.arange(20.0)))(w)
    assert np.asarray(pull)[np.argsort(-np.abs(w))[2:]].any()


def test_every_mask_moves_weights_that_a_hard_top_k_does_not_select():
    # One run for each would spend its time on compilation: three steps of each, in one compiled call, of a small
    # layer, as some take time and memory by the square of its size.
    data = data_lib.load(small_config())
    batch = {name: array[:32] for name, array in data.train.items()}

    def train(config, before):
        experiment = RECIPE.build(config, data)

        def step(params, key):
            gradient, metrics = jax.grad(experiment.loss, has_aux=True)(params, batch, key, jnp.float32(0))
            return jax.tree.map(lambda w, g: w - 0.02 * g, params, gradient), metrics["loss"]

        after, losses = jax.lax.scan(step, before, jax.random.split(jax.random.key(1), 3))
        return after["network"]["1"]["kernel"], losses

    configs = [small_config("mask_straight_through", mask__name=name, mask__num_samples=3) for name in MASKS]
    configs += [small_config("ot_straight_through"), small_config("hard")]

    def all_from_one_start(key):
        before = RECIPE.build(configs[0], data).init(key)
        return before["network"]["1"]["kernel"], [train(config, before) for config in configs]

    before, (*relaxed, by_ot, by_hard) = jax.device_get(jax.jit(all_from_one_start)(jax.random.key(0)))
    magnitudes = np.abs(before)
    unselected = magnitudes < np.sort(magnitudes, axis=None)[-num_kept(0.1, before.size)]
    for after, losses in relaxed:
        assert losses[0] == pytest.approx(by_hard[1][0], rel=1e-5)  # forward they are all hard
        assert losses[2] < losses[0]
        assert (before != after)[unselected].mean() > 0.1
    assert not (before != by_hard[0])[unselected].any()
    np.testing.assert_allclose(relaxed[0][0], by_ot[0], atol=1e-6)  # optimal transport goes by two names


def test_annealed_starts_dense_and_ends_at_the_density(tmp_path):
    first, *_, last = rows_of(tmp_path, "annealed", lam__start=100.0, lam__end=1e-6)
    assert min(first["train_density"]) > 0.5
    assert last["train_density"] == pytest.approx([0.1, 0.1], abs=4e-3)


def test_the_support_falls_as_a_cubic_until_it_is_hard():
    w, fields = jax.random.normal(jax.random.key(0), (SIZE,)), {"lam__schedule": "support", "hard_after": 0.8}
    method = METHODS["relaxed"].make(small_config("relaxed", p=4 / 3, debias=True, **fields), 10)
    found = [np.count_nonzero(method.weights(w, {}, jnp.float32(progress), None)) for progress in (0, 0.4, 0.8, 1)]
    assert found == [SIZE, pytest.approx((0.1 + 0.9 * 0.5**3) * SIZE, abs=2), 64, 64]


@pytest.mark.parametrize(("field", "value"), [("form", "mask"), ("density_schedule.name", "cubic")])
def test_the_support_is_that_of_the_operator_at_one_density(field, value):
    config = small_config("relaxed", lam__schedule="support")
    config.update_from_flattened_dict({field: value})
    with pytest.raises(UsageError, match=rf"^config\.{field}=.* must be .* with lam.schedule='support'"):
        RECIPE.validate(config)


def test_relaxed_is_denser_than_hard_and_hardens_to_k(tmp_path):
    last = rows_of(tmp_path, "relaxed", lam__start=1.0)[-1]
    assert min(last["train_density"]) > 0.1
    assert_exact(last["hardened_density_per_layer"])


def test_ista_ends_at_k(tmp_path):
    rows = rows_of(tmp_path, "ista")
    densities = [row["train_density"][0] for row in rows]
    assert densities == sorted(densities, reverse=True)
    assert densities[0] == 1.0
    assert_exact(rows[-1]["train_density_per_layer"])


def test_hard_concrete_ends_near_the_density(tmp_path):
    rows = rows_of(tmp_path, "hard_concrete", epochs=80, checkpoint_every=80, hidden=(32, 32))
    assert rows[0]["train_density"] == [1.0, 1.0]
    assert rows[-1]["train_density"] == pytest.approx([0.1, 0.1], abs=0.03)


def test_widths_and_density_by_config_and_layers_left_alone_do_not_count(tmp_path):
    fields = {"epochs": 1, "hidden": (16, 15), "prune_layers": (1, 3), "density": 0.29}
    last = rows_of(tmp_path, "hard", **fields)[-1]
    kept = {"1": (296, 64 * 16), "3": (43, 15 * 10)}
    assert last["train_density_per_layer"] == {layer: pytest.approx([k / n] * 2) for layer, (k, n) in kept.items()}
    assert last["train_density"] == pytest.approx([(296 + 43) / (1024 + 150)] * 2)


def test_num_kept_rounds_down():
    assert [num_kept(0.1, size) for size in (25088, 1024, 320)] == [2508, 102, 32]
    assert num_kept(0.29, 100) == 29


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", "magic"),
        ("density", 0.0),
        ("p", 1.0),
        ("lam.schedule", "cosine"),
        ("lam.start", -1.0),
        ("ot.epsilon", 0.0),
        ("inputs", "pixels"),
        ("initialisation", "zeros"),
        ("form", "magic"),
        ("budget", "layer"),
        ("density_schedule.name", "linear"),
        ("density_schedule.begin", 1.0),
        ("density_schedule.end", 0.0),
        ("density_schedule.every", 0),
        ("hard_after", 0.0),
        ("mask.name", "magic"),
        ("mask.strength", 0.0),
        ("mask.num_samples", 0),
        ("hard_concrete.damping", -1.0),
        ("rigl.drop", 0.0),
        ("topkast.backward_density", 1.5),
        ("topkast.penalty", -1.0),
        ("str.weight_decay", -1.0),
        ("prune_layers", ()),
        ("prune_layers", (1, 4)),
        ("hidden", (32, 0)),
    ],
)
def test_a_field_out_of_range_is_named(field, value):
    config = small_config()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(UsageError, match=rf"^config\.{field}=.* must be "):
        RECIPE.validate(config)


@pytest.mark.parametrize("variant", ["ot_straight_through", "mask_straight_through"])
def test_a_mask_strictly_between_0_and_1_cannot_keep_everything(variant):
    with pytest.raises(UsageError, match=r"^config\.density=1\.0 .* must be in \(0, 1\) for "):
        RECIPE.validate(small_config(variant, density=1.0))


def test_dense_prunes_only_when_hardened_and_the_saved_config_is_the_one_asked_for(tmp_path):
    last = rows_of(tmp_path, "dense", epochs=1)[-1]
    assert last["train_density"] == [1.0, 1.0]
    assert_exact(last["hardened_density_per_layer"])
    saved = json.loads((tmp_path / "w" / "config.json").read_text())
    assert (saved["method"], saved["dataset"], saved["epochs"]) == ("dense", "digits", 1)


def test_a_method_is_one_entry_with_a_name_for_reports(tmp_path, monkeypatch):
    """Config, validation, the demo and the report find it there."""
    first = PruningMethod(
        lambda config, total_steps: by_number(lambda w, k: w.at[k:].set(0), config),
        validate=lambda config: require(config.hidden != (9, 9), "hidden", config.hidden, "wider"),
        density_schedules=("cubic",),
        keeps_all=False,
    )
    assert "final-layers123-first" not in {run.name for run in SUITE.presets["demo"]()}
    monkeypatch.setitem(METHODS, "first", first)
    monkeypatch.setitem(KINDS.reads, "first", first.reads)
    monkeypatch.setitem(report.LOOKS, "first", ("the first k", ("#123456", ":")))
    (run,) = (run for run in SUITE.presets["demo"]() if run.base["method"] == "first")
    assert run.name == "final-layers123-first"
    RECIPE.validate(SUITE.config(run, tmp_path))
    config = config_file.of_file(ROOT / "configs/mnist_pruning.py", "first")
    assert (config.method, config.density_schedule.name) == ("first", "cubic")
    for fields, message in (
        ({"method": "magic"}, r"^config\.method='magic' .* one of dense, .*, str, first$"),
        ({"method": "hard", "hidden": (9, 9)}, r"^config\.hidden=\(9, 9\) .* must be wider"),
        ({"method": "first"}, r"^config\.density_schedule\.name='constant' .* must be cubic for first"),
        (
            {"method": "first", "density": 1.0, "density_schedule__name": "cubic"},
            r"^config\.density=1\.0 .* must be in \(0, 1\) for first",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            RECIPE.validate(small_config(**fields))
    write_workdir(tmp_path / "run", [[90.0, 88.0], [4.0, 5.0]], method="first", density_schedule__name="cubic")
    found, problems = report.PRESENTATION.load(tmp_path)
    assert not problems
    assert "| the first k |" in "\n".join(report.tables(found, frozenset()))
    (line,) = report.figures(found)["all-methods-layers123"].axes[0].get_lines()
    assert (line.get_color(), line.get_linestyle()) == ("#123456", ":")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_without_the_fields_that_it_does_not_read(name):
    config = mnist_pruning.get_config(name)
    fields = dotted(config)
    for field in fields:
        section, _, leaf = field.rpartition(".")
        if not KINDS.is_read(field, fields):
            del (config[section] if section else config)[leaf]
    method = METHODS[name].make(config, 10)

    def trained(w, key, progress):
        state = method.init(w, key)
        w, state = method.after_update(w, state, w, progress)
        return method.weights(w, state, progress, key), method.penalty(w, state, progress)

    weights, _ = jax.eval_shape(trained, jnp.ones(20), jax.random.key(0), jnp.float32(0.5))
    assert weights.shape == (20,)
