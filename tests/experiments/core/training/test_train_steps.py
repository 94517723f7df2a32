"""Runs whose length is given in steps: on one device and on eight, accumulated, streamed, stopped and resumed."""

import dataclasses
import json
import random
import shutil

import jax
import jax.monitoring
import numpy as np
import optax
import pytest

from experiments.core.errors import UsageError
from experiments.core.input.dataset import load
from experiments.core.input.stream import batch_indices
from experiments.core.record import metrics
from experiments.core.training import optimizer, train
from experiments.core.training.experiment import Recipe
from experiments.core.training.recorder import Progress
from tests.experiments.toy import RECIPE, STREAM, STREAMED, Killed, build, killed_at, toy_config, values

MESHES = {"data": {"data": 8}, "fsdp": {"data": 2, "fsdp": 4}, "expert": {"data": 1, "fsdp": 2, "expert": -1}}
FOURTH = {"eval_every": 4, "checkpoint_every": 20}


def run(workdir, recipe=RECIPE, **fields):
    train.run(recipe, toy_config(**fields), workdir)
    return metrics.read(workdir / "metrics.jsonl")


def assert_close(rows, expected):
    np.testing.assert_allclose([*map(values, rows)], [*map(values, expected)], rtol=1e-5, atol=1e-6)


def assert_same(rows, expected):
    np.testing.assert_array_equal([*map(values, rows)], [*map(values, expected)])


def test_gradient_norm_is_before_clipping(tmp_path):
    """Some steps are clipped, the first of them."""
    fields = {"eval_every": 1, "checkpoint_every": 20, "optimizer": {"clip_norm": 55.0}}
    _, *rows = run(tmp_path, **fields)
    config = toy_config(**fields)
    data = load(config)
    experiment, size = build(config, data), len(data.train["label"])
    chosen = batch_indices(3, 0, size, 64)

    @jax.jit
    def first_gradient(batch):
        params = experiment.init(jax.random.fold_in(jax.random.key(3), 0))
        return jax.grad(experiment.loss, has_aux=True)(params, batch, jax.random.key(0), 0.0)[0]

    gradient = first_gradient({name: array[chosen] for name, array in data.train.items()})
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in map(np.asarray, jax.tree.leaves(gradient))))
    assert rows[0]["train_gradient_norm"][0] == pytest.approx(norm, rel=1e-4)
    assert [row["train_clipped"] for row in rows] == [[float(row["train_gradient_norm"][0] > 55.0)] for row in rows]
    assert (rows[0]["train_clipped"], rows[-1]["train_clipped"]) == ([1.0], [0.0])


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A run of twenty steps with a row after each fourth, on one device, which takes four at once."""
    run(workdir := tmp_path_factory.mktemp("runs") / "w", steps_per_dispatch=4, **FOURTH)
    return workdir


@pytest.fixture
def one(directory):
    """Its rows."""
    return metrics.read(directory / "metrics.jsonl")


@pytest.fixture
def compiled_before_rows(monkeypatch):
    """How many programs have been compiled before each row."""
    compiled, counted, show = [], [], Progress.show

    def noted(event, seconds, **_):
        if "backend_compile" in event:
            compiled.append(event)

    def shown(progress, row):
        counted.append(len(compiled))
        show(progress, row)

    monkeypatch.setattr(Progress, "show", shown)
    jax.monitoring.register_event_duration_secs_listener(noted)
    yield counted
    jax.monitoring.unregister_event_duration_listener(noted)


def test_rows_report_loss_rate_and_speed(tmp_path, capsys, compiled_before_rows):
    rows = run(tmp_path / "w", steps=18)
    assert compiled_before_rows[0] > 0
    assert compiled_before_rows == [compiled_before_rows[0]] * len(rows)
    assert [row["step"] for row in rows] == [0, 4, 8, 12, 16, 18]
    assert rows[0]["train_loss"] == rows[0]["train_hidden"]["active"] == [None]
    assert rows[0]["learning_rate"] is rows[0]["performance"]["step_seconds"] is None
    config = toy_config(steps=18)
    assert [row["learning_rate"] for row in rows[1:]] == [
        optimizer.learning_rate(config, t) for t in (3, 7, 11, 15, 17)
    ]
    assert rows[-1]["test"]["loss"][0] < rows[0]["test"]["loss"][0] - 0.3
    assert 0.1 < rows[-1]["train_hidden"]["active"][0] < 0.9
    performance = rows[-1]["performance"]
    assert performance["mfu"] is None
    assert 0 < performance["step_seconds"] < 1
    assert 64 / performance["step_seconds"] == pytest.approx(performance["images_per_second"], rel=0.9)
    out = capsys.readouterr().out
    assert f"step 18/18  train_loss {rows[-1]['train_loss'][0]:.4g}  test/loss {rows[-1]['test']['loss'][0]:.4g}" in out
    summary = json.loads((tmp_path / "w" / "summary.json").read_text())
    assert summary["final"]["test_error"]["per_seed"] == rows[-1]["test_error"]
    assert not (tmp_path / "w" / "params.npz").exists()  # unasked


def test_train_loss_is_mean_over_interval(tmp_path, one):
    each_step = run(tmp_path / "w", eval_every=1, checkpoint_every=20)
    steps = np.asarray([row["train_loss"][0] for row in each_step[1:]])
    np.testing.assert_allclose([row["train_loss"][0] for row in one[1:]], steps.reshape(5, 4).mean(axis=1), rtol=1e-5)
    assert one[-1]["test_error"] == each_step[-1]["test_error"]


@pytest.mark.parametrize(
    ("name", "recipe", "fields"),
    [
        ("fsdp", STREAMED, {"accumulate": 4, "eval_batch_size": 128}),
        ("expert", RECIPE, {}),
    ],
)
def test_losses_match_those_of_one_device(tmp_path, one, name, recipe, fields):
    assert_close(run(tmp_path / "w", recipe, mesh=MESHES[name], **fields, **FOURTH), one)


def test_seeds_side_by_side_train_as_alone(tmp_path, one):
    rows = run(tmp_path / "w", seeds=(5, 3), mesh=MESHES["fsdp"], **FOURTH)
    wanted = [row["train_loss"][0] for row in one[1:]]
    assert [row["train_loss"][1] for row in rows[1:]] == pytest.approx(wanted, rel=1e-5)
    assert len({row["train_loss"][0] for row in rows[1:]} | set(wanted)) == 2 * len(wanted)


NOISY = STREAM | {"checkpoint_every": 5}  # on the fifth step, rows on the fourth


def test_killed_run_resumes_to_same_rows(tmp_path):
    """From several devices to one: test_two_processes.py."""
    whole = run(tmp_path / "whole", STREAMED, **NOISY)
    for step in sorted(random.Random(1).sample(range(4, 20), 2)):
        with pytest.raises(Killed):
            run(tmp_path / "w", killed_at(step), **NOISY)
    shutil.copytree(tmp_path / "w", tmp_path / "copy")
    assert_same(run(tmp_path / "w", STREAMED, **NOISY), whole)
    rows = run(tmp_path / "copy", STREAMED, **NOISY, mesh=MESHES["fsdp"])
    assert_same(rows[:2], whole[:2])
    assert_close(rows, whole)


def pretrained(arrays):
    return Recipe("toy", lambda config: None, lambda config, data: build(config, data, arrays))


def test_pretrained_replace_some_parameters(tmp_path):
    kernel = np.zeros((512, 10), np.float32)
    rows = run(tmp_path, pretrained({"second": {"kernel": kernel}}), mesh=MESHES["fsdp"], seeds=(0, 1), **FOURTH)
    assert rows[0]["test"]["loss"] == pytest.approx([np.log(10)] * 2)  # zeros: uniform predictions
    assert rows[1]["train_hidden"]["active"][0] > 0.3  # the other kernel is not zero


def test_foreign_parameters_are_refused(tmp_path):
    for arrays, message in (
        ({"second": {"kernel": np.zeros((512, 9), np.float32)}}, r"\['second'\]\['kernel'\] has shape \(512, 9\)"),
        ({"head": np.zeros(3, np.float32)}, r"\['head'\] is not one of the model, which has \['first'\]"),
    ):
        with pytest.raises(UsageError, match=message):
            run(tmp_path / "w", pretrained(arrays))
    assert not (tmp_path / "w").exists()


def test_streams_need_eval_batch_size(tmp_path):
    with pytest.raises(UsageError, match=r"^config\.eval_batch_size=None .* must be given"):
        run(tmp_path / "w", STREAMED)


def test_mesh_may_differ_but_not_optimizer(directory, one):
    with pytest.raises(UsageError, match=r"another config: config\.optimizer\.clip_norm"):
        run(directory, steps_per_dispatch=4, **FOURTH, optimizer={"clip_norm": 2.0})
    assert run(directory, steps_per_dispatch=4, **FOURTH, mesh=MESHES["data"]) == one


def test_nonscalar_loss_metric_is_an_error(tmp_path):
    def wrong(config, data):
        experiment = build(config, data)

        def loss(params, batch, key, progress):
            objective, measured = experiment.loss(params, batch, key, progress)
            return objective, measured | {"vector": jax.numpy.zeros(3)}

        return dataclasses.replace(experiment, loss=loss, optimizer=optax.sgd(0.1))

    with pytest.raises(ValueError, match=r"metric \['vector'\] of the loss has shape \(3,\)"):
        run(tmp_path / "w", Recipe("toy", lambda config: None, wrong))
