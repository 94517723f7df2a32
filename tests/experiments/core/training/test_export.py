"""Parameters at the end of a run: those that were trained, wherever they lay, and readable as a pretrained network."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.record import metrics
from experiments.core.record.pictures import Histogram
from experiments.core.record.workdir import Workdir
from experiments.core.report import results
from experiments.core.training import export, train
from experiments.core.training.experiment import Recipe
from experiments.mnist_pruning.experiment import RECIPE as PRUNING
from experiments.vision import vit
from experiments.vision.pretrained import load_pretrained
from tests.experiments.support import small_config
from tests.experiments.toy import RECIPE, build, toy_config


def saved(workdir):
    with np.load(workdir.params, allow_pickle=False) as file:
        return dict(file)


def test_sharded_parameters_are_whole_and_those_of_the_last_row(tmp_path):
    config = toy_config(steps=6, export_params=True, export_pictures=True, mesh={"data": 2, "fsdp": 4})
    train.run(RECIPE, config, tmp_path)
    workdir = Workdir(tmp_path)
    arrays = saved(workdir)
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
        "first/kernel": ((64, 512), np.float32),
        "second/kernel": ((512, 10), np.float32),
    }
    # The network of NumPy has the error and the loss of the last row.
    test = data_lib.load(config).evaluation
    hidden = np.maximum(test["image"].reshape(len(test["label"]), -1) / 16 @ arrays["first/kernel"], 0)
    scores = hidden @ arrays["second/kernel"]
    loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(scores)), test["label"]]
    row = metrics.read(workdir.metrics)[-1]
    assert row["test_error"] == pytest.approx([100 * (scores.argmax(axis=1) != test["label"]).mean()])
    assert row["test"]["loss"] == pytest.approx([loss.mean()], rel=1e-5)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
    # So are the histograms; of images the toy has none.
    (run,), _ = results.load(tmp_path)
    assert run.pictures.images == {}
    for name, array in arrays.items():
        np.testing.assert_array_equal(run.pictures.histograms[name].counts, Histogram.of(array).counts)


def test_a_run_in_epochs_of_one_seed_has_no_axis_of_seeds(tmp_path):
    config = small_config("dense", seeds=(1,), epochs=1)
    config.export_params = True
    train.run(PRUNING, config, tmp_path)
    experiment = PRUNING.build(config, data_lib.load(config))
    params = jax.eval_shape(experiment.init, jax.random.key(0))
    expected = flatten_dict(jax.eval_shape(experiment.exported, params), sep="/")
    arrays = saved(Workdir(tmp_path))
    assert {name: array.shape for name, array in arrays.items()} == {
        name: leaf.shape for name, leaf in expected.items()
    }
    assert [arrays[f"{tree}/1/kernel"].shape for tree in ("network", "hardened", "trained/network")] == [(64, 10)] * 3


def test_it_comes_before_the_summary_and_only_when_the_run_is_done(tmp_path, monkeypatch):
    fields = {"steps": 6, "export_params": True}

    def full(path, arrays):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(export, "write", full)
        with pytest.raises(OSError, match="No space"):
            train.run(RECIPE, toy_config(**fields), tmp_path)
    assert not Workdir(tmp_path).summary.exists()
    train.run(RECIPE, toy_config(**fields), tmp_path)  # only what was left to do
    assert Workdir(tmp_path).summary.exists()
    assert saved(Workdir(tmp_path)).keys() == {"first/kernel", "second/kernel"}


def test_numbers_of_other_types_become_float32(tmp_path):
    params = {"a": {"b": jnp.full((2, 3), 1.5, jnp.bfloat16)}, "c": jnp.arange(3.0)}
    path = tmp_path / "params.npz"
    export.write(path, export.gather(params, seed_axis=False))
    with np.load(path) as file:
        assert {name: file[name].dtype for name in file.files} == {"a/b": np.float32, "c": np.float32}
        np.testing.assert_array_equal(file["a/b"], np.full((2, 3), 1.5))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"export_params": True, "seeds": (0, 1)}, r"^config\.seeds=\(0, 1\) .* a single one where export_params=True"),
        ({"export_params": "yes"}, r"^config\.export_params='yes' .* True or False"),
    ],
)
def test_fields_are_checked_before_anything_is_written(tmp_path, fields, message):
    with pytest.raises(UsageError, match=message):
        train.run(RECIPE, toy_config(**fields), tmp_path / "w")
    assert not (tmp_path / "w").exists()


def build_vit(config, data):
    """Digits as images of 8 x 8 pixels in three channels."""
    model = vit.make("mu/4", data.num_classes)

    def logits(params, images):
        return model.apply({"params": params}, jnp.repeat(images.astype(jnp.float32) / 16, 3, axis=-1))

    def init(key):
        return model.init(key, jnp.zeros((1, 8, 8, 3)))["params"]

    def loss(params, batch, key, progress):
        scores = logits(params, batch["image"])
        value = optax.softmax_cross_entropy_with_integer_labels(scores, batch["label"]).mean()
        return value, {"loss": value}

    def evaluate(params, examples, progress):
        scores = logits(params, examples["image"])
        return {"test": {"loss": optax.softmax_cross_entropy_with_integer_labels(scores, examples["label"])}}

    return dataclasses.replace(build(config, data), init=init, loss=loss, evaluate=evaluate)


def test_a_vision_transformer_is_loaded_as_a_pretrained_one(tmp_path):
    recipe = Recipe("toy", lambda config: None, build_vit)
    train.run(recipe, toy_config(steps=5, export_params=True), tmp_path / "w")
    workdir = Workdir(tmp_path / "w")
    model = vit.make("mu/4", 10)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 8, 8, 3)))["params"]
    loaded = load_pretrained(workdir.params, shapes, keep_head=True)
    named = flatten_dict(loaded, sep="/")
    assert named.keys() == saved(workdir).keys()
    for name, array in saved(workdir).items():
        np.testing.assert_array_equal(named[name], array)
    assert np.abs(np.asarray(named["head/kernel"])).max() > 0  # 0 before the training


def build_examined(config, data):
    """The toy, which says of an example whether it is an error."""
    experiment = build(config, data)

    def examine(params, examples):
        hidden = jnp.maximum(examples["image"].reshape(-1, 64) / 16 @ params["first"]["kernel"], 0)
        return {"wrong": (hidden @ params["second"]["kernel"]).argmax(axis=1) != examples["label"]}

    return dataclasses.replace(experiment, examine=examine)


def test_what_is_said_of_examples_is_kept_and_read_and_damage_is_named(tmp_path):
    recipe = Recipe("toy", lambda config: None, build_examined)
    train.run(recipe, toy_config(steps=5, seeds=(0, 1), export_examples=True), tmp_path / "w")
    (run,), problems = results.load(tmp_path)
    assert problems == []
    assert run.examples["wrong"].shape == (2, 359)
    assert run.examples["wrong"].mean(axis=1) * 100 == pytest.approx(run.final("test_error"))
    path = Workdir(tmp_path / "w").examples
    path.write_bytes(path.read_bytes()[:-1])
    runs, (problem,) = results.load(tmp_path)
    assert runs == []
    assert problem.reason.startswith("examples.npz is damaged: its SHA-256 is not the one in summary.json")


def test_an_experiment_with_nothing_to_say_of_examples_is_not_asked(tmp_path):
    with pytest.raises(UsageError, match=r"^config\.export_examples=True .* False for toy, which has nothing to say"):
        train.run(RECIPE, toy_config(export_examples=True), tmp_path / "w")
    assert not (tmp_path / "w").exists()
