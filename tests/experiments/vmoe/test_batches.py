"""The study of batches on a network that has hardly trained: its numbers against those of the run and of counting."""

import itertools
import json
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.record.workdir import Workdir
from experiments.core.training import train
from experiments.vision.networks import inputs_of
from experiments.vmoe import batches, outputs
from experiments.vmoe.experiment import RECIPE, make_model
from experiments.vmoe.routers import RelaxedExpertChoice, TokenChoice
from tests.experiments.vmoe.tiny import random_params, tiny_config

GROUP = 10  # images in training, of 16 tokens; 8 experts
SHORT = {
    "seeds": (0, 1),
    "steps": 6,
    "eval_every": 6,
    "checkpoint_every": 6,
    "eval_batch_size": 40,
    "optimizer__warmup_steps": 1,
    "model__depth": 1,
    "moe__blocks": (0,),
}


@pytest.fixture(scope="module", params=["relaxed", "token_choice"])
def studied(request, tmp_path_factory):
    """The record of a run, by the command; and its workdir."""
    path = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        train.run(RECIPE, tiny_config(f"small,router={request.param}", **SHORT), path)
        patch.setattr(batches, "SIZES", (1, GROUP, 40))
        assert batches.main([str(path), f"--out={path / 'batches'}"]) == 0
    record = json.loads((path / "batches" / f"{path.name}.json").read_text())
    return record["run"], Workdir(path)


def row(record, way, images):
    (found,) = [row for row in record["rows"] if (row["way"], row["images"]) == (way, images)]
    return found


def test_in_batches_of_training_it_is_the_run(studied):
    record, workdir = studied
    final = workdir.read_summary()["final"]
    found = row(record, "batch", GROUP)
    count = len(data_lib.load(tiny_config()).evaluation["label"])
    # The last images of the test set have other neighbours.
    np.testing.assert_allclose(
        found["precision"], final["test_precision_at_1"]["per_seed"], atol=100 * (count % GROUP) / count + 1e-3
    )
    routing = final["test_router"]["block_0"]
    np.testing.assert_allclose(found["without"], 100 - np.array(routing["served_by_1"]["per_seed"]), atol=1)
    assert record["environment"]["experiment"] == "vmoe"


def test_alone_loads_vary_less_in_large_batches(studied):
    record, _ = studied
    assert 0 < max(record["changed"]) < 100
    rows = [row(record, "alone", images) for images in (1, GROUP, 40)]
    assert rows[0]["precision"] == rows[1]["precision"] == rows[2]["precision"]
    for smaller, larger in itertools.pairwise(rows):
        assert (np.array(larger["variation"]) < smaller["variation"]).all()


def test_experts_take_their_share(studied):
    record, _ = studied
    router = record["config"]["router"]
    for images in (1, GROUP, 40):
        alone, batch = (np.array(row(record, way, images)["tokens"]) for way in ("alone", "batch"))
        if router["name"] == "token_choice":
            np.testing.assert_allclose(alone, router["selected"] * GROUP * 16 / 8, rtol=1e-6)
            dropped = np.array(row(record, "batch", images)["dropped"])
            np.testing.assert_allclose(batch / alone, 1 - dropped / 100, rtol=1e-5)
        else:
            np.testing.assert_allclose(alone, router["k"], rtol=0.2)
            assert (np.array(row(record, "batch", images)["variation"]) < 0.2).all()


@pytest.mark.parametrize("name", ["relaxed", "token_choice"])
def test_alone_no_prediction_depends_on_the_batch(name):
    config = tiny_config(f"small,router={name}", model__depth=1, moe__blocks=(0,))
    data = data_lib.load(config)
    params, router = random_params(config, data), batches.trained_router(config)
    thresholds = batches._thresholds(config, data, router)(params) if name == "relaxed" else {}
    ones, many = (batches._evaluation(config, data, router, size, alone=True)(params, thresholds) for size in (1, 40))
    for field in ("classes", "served", "without"):
        np.testing.assert_array_equal(getattr(ones, field), getattr(many, field))
    assert ones.served.sum() > 0


def test_thresholds_are_means_over_groups_of_training_images(monkeypatch):
    config = tiny_config("small,router=hard", moe__blocks=(1,), router__score="logits")
    data = data_lib.load(config)
    params = random_params(config, data)
    router = batches.trained_router(config)
    monkeypatch.setattr(batches, "THRESHOLD_IMAGES", 55)  # five groups and a part of one
    (threshold,) = batches._thresholds(config, data, router)(params).values()
    network = make_model(config, 10, router)
    prepared = inputs_of(config).prepare_stored(jnp.asarray(data.train["image"][:50]))
    (seen,) = outputs.router_logits(network, params, prepared).values()
    ordered = np.sort(np.asarray(seen.clean), axis=1)  # [G, S, E]
    last, next_one = (ordered[:, -k].mean(axis=0) for k in (config.router.k, config.router.k + 1))
    assert (next_one < threshold.tau).all()
    assert (threshold.tau < last).all()
    assert len(ordered) == 5


def test_k_and_slots_are_in_proportion():
    half = batches.proportional(RelaxedExpertChoice(5, 7, 0.3), Fraction(1, 2))
    assert (half.k, half.capacity, half.lam) == (2.5, 4, 0.3)
    assert batches.proportional(RelaxedExpertChoice(5, 5, 0.0), Fraction(1, 2)) == RelaxedExpertChoice(3, 3, 0.0)
    assert batches.proportional(TokenChoice(2, 28), Fraction(1024, 25)) == TokenChoice(2, 1147)


@pytest.mark.parametrize(
    ("variant", "fields"),
    [
        ("small,router=soft", {}),
        ("small,router=relaxed", {"router__dykstra": 10}),
        ("small,router=relaxed", {"router__lam__schedule": "geometric"}),
    ],
)
def test_other_routers_are_refused(variant, fields):
    with pytest.raises(UsageError, match=r"config\.router\.name=.* exact mask"):
        batches.trained_router(tiny_config(variant, **fields))


def test_a_run_that_is_not_done_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not done, or has no checkpoint"):
        batches.study(str(tmp_path), (1, 2))
