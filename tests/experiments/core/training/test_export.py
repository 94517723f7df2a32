"""Files at the end of a run: parameters, words on examples; and what TensorBoard is told."""

import dataclasses
import shutil

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from experiments.core.report import results
from experiments.core.training import recorder, train
from experiments.core.training.experiment import Recipe
from tests.experiments.core.fake_clu import replace_clu
from tests.experiments.core.training.test_train_steps import MESHES
from tests.experiments.toy import RECIPE, build, inputs, logits, toy_config

AT_END = {"eval_every": 20, "checkpoint_every": 20}  # of the toy's twenty steps


def saved(workdir):
    with np.load(workdir.params, allow_pickle=False) as file:
        return dict(file)


def test_exported_parameters_match_last_row(tmp_path):
    config = toy_config(export_params=True, mesh=MESHES["expert"], **AT_END)
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


def test_parameters_come_before_the_summary(tmp_path, monkeypatch):
    fields = AT_END | {"export_params": True}

    def full(path):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(recorder, "replacing", full)
        with pytest.raises(OSError, match="No space"):
            train.run(RECIPE, toy_config(**fields), tmp_path)
    assert not Workdir(tmp_path).summary.exists()
    train.run(RECIPE, toy_config(**fields), tmp_path)  # only what was left to do
    assert Workdir(tmp_path).summary.exists()
    assert saved(Workdir(tmp_path)).keys() == {"first/kernel", "second/kernel"}


def test_seeds_are_exported_side_by_side(tmp_path):
    for name, seeds in {"both": (0, 1), "second": (1,)}.items():
        train.run(RECIPE, toy_config(export_params=True, seeds=seeds, **AT_END), tmp_path / name)
    both, second = (saved(Workdir(tmp_path / name)) for name in ("both", "second"))
    for name, array in second.items():
        np.testing.assert_allclose(both[name][1], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"export_params": "yes"}, r"^config\.export_params='yes' .* True or False"),
        ({"export_examples": True}, r"^config\.export_examples=True .* False for toy"),
    ],
)
def test_bad_export_fields_are_refused(tmp_path, fields, message):
    with pytest.raises(UsageError, match=message):
        train.run(RECIPE, toy_config(**fields), tmp_path / "w")
    assert not (tmp_path / "w").exists()


def build_talkative(config, data):
    """The toy, which has words on each example."""

    def wrong(params, examples):
        return {"wrong": logits(params, inputs(examples["image"]))[0].argmax(axis=1) != examples["label"]}

    return dataclasses.replace(build(config, data), examine=wrong)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The place of a run of two seeds, what TensorBoard was told of it, and its parameters at the end."""
    directory, kept = tmp_path_factory.mktemp("runs"), {}
    gather = recorder.gather

    def gathered(params):
        return kept.setdefault("params", gather(params))

    with pytest.MonkeyPatch.context() as patch:
        writers = replace_clu(patch)
        patch.setattr(recorder, "gather", gathered)
        config = toy_config(seeds=(0, 1), tensorboard=True, export_examples=True, **AT_END)
        train.run(Recipe("toy", lambda config: None, build_talkative), config, directory / "w")
    return directory, {name: arguments for name, *arguments in writers[0].written}, kept["params"]


def test_words_on_examples_are_read_again(written):
    (run,), problems = results.load(written[0])
    assert problems == []
    assert run.examples["wrong"].shape == (2, 359)
    assert run.examples["wrong"].mean(axis=1) * 100 == pytest.approx(run.final("test_error"))


def test_tensorboard_histograms_span_seeds(written):
    _, told, params = written
    assert params["second/kernel"].shape == (2, 512, 10)
    assert told["write_histograms"] == [20, params]


def test_damage_is_named_in_one_line(written, tmp_path):
    workdir = Workdir(shutil.copytree(written[0] / "w", tmp_path / "w"))
    path = workdir.examples
    path.write_bytes(path.read_bytes()[:-1])
    runs, (cut,) = results.load(tmp_path)
    path.unlink()
    _, (lost,) = results.load(tmp_path)
    assert runs == []
    assert cut.reason.startswith("examples.npz is damaged: its SHA-256 is not the one in summary.json")
    assert lost.reason.startswith("examples.npz is missing, of which summary.json has the SHA-256")
    assert "\n" not in cut.reason + lost.reason
