"""Images and histograms at the end of a run: in its workdir, for who reads it and for TensorBoard."""

import dataclasses
import shutil

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.record import tensorboard
from experiments.core.record.workdir import Workdir
from experiments.core.report import results
from experiments.core.training import export, train
from experiments.core.training.experiment import Recipe
from tests.experiments.core.fake_clu import replace_clu
from tests.experiments.toy import RECIPE, build, toy_config


def build_pictured(config, data):
    """The toy, with an image of the first weights, and one of what a seed that diverged has."""

    def pictures(params):
        kernel = params["first"]["kernel"][:, :12].reshape(1, 16, 16, 3)
        return {"weights": (1 + kernel / abs(kernel).max()) / 2, "lost": kernel * np.float32(np.nan)}

    return dataclasses.replace(build(config, data), pictures=pictures)


PICTURED = Recipe("toy", lambda config: None, build_pictured)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run of two seeds, what TensorBoard was told of it, and its parameters at the end, one seed at a time."""
    directory = tmp_path_factory.mktemp("runs")

    def gathered(params, *, seed_axis):
        return kept.setdefault("params", gather(params, seed_axis=seed_axis))

    kept, gather = {}, export.gather
    with pytest.MonkeyPatch.context() as patch:
        writers = replace_clu(patch)
        patch.setattr(tensorboard, "available", lambda: True)
        patch.setattr(export, "gather", gathered)
        config = toy_config(steps=5, eval_every=5, seeds=(0, 1), export_pictures=True, tensorboard=True)
        train.run(PICTURED, config, directory / "w")
    return directory, {name: arguments for name, *arguments in writers[0].written}, kept["params"]


def test_the_file_has_images_of_the_first_seed_and_histograms_over_all(written):
    directory, _, params = written
    (run,), problems = results.load(directory)
    assert problems == []
    kernel = params["first/kernel"][0, :, :12].reshape(1, 16, 16, 3)
    expected = np.rint(255 * (1 + kernel / np.abs(kernel).max()) / 2)
    assert run.pictures.images["weights"].dtype == np.uint8
    np.testing.assert_allclose(run.pictures.images["weights"], expected, atol=1)
    np.testing.assert_array_equal(run.pictures.images["lost"], 0)
    histogram = run.pictures.histograms["second/kernel"]
    assert histogram.counts.sum() == 2 * 512 * 10
    assert histogram.edges[[0, -1]].tolist() == [params["second/kernel"].min(), params["second/kernel"].max()]


def test_tensorboard_has_the_same_images(written):
    directory, told, params = written
    (run,), _ = results.load(directory)
    step, images = told["write_images"]
    assert (step, images.keys()) == (5, run.pictures.images.keys())
    for name, image in images.items():
        np.testing.assert_array_equal(image, run.pictures.images[name])
    assert told["write_histograms"] == [5, params]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged: its SHA-256 is not the one in summary.json"),
        (lambda path: path.unlink(), "missing, of which summary.json has the SHA-256"),
    ],
)
def test_damage_is_named_in_one_line(written, tmp_path, damage, reason):
    shutil.copytree(written[0] / "w", tmp_path / "w")
    damage(Workdir(tmp_path / "w").pictures)
    runs, (problem,) = results.load(tmp_path)
    assert runs == []
    assert problem.reason.startswith(f"pictures.npz is {reason}")
    assert "\n" not in problem.reason


def test_the_field_is_checked(tmp_path):
    with pytest.raises(UsageError, match=r"^config\.export_pictures='yes' .* True or False"):
        train.run(RECIPE, toy_config(export_pictures="yes"), tmp_path / "w")
