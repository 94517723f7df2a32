"""A run that a suite trains and draws, and the study of batches on it: its numbers against the run's and by hand."""

import json
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data_lib
from experiments.core.record import metrics
from experiments.core.record.workdir import Workdir
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.vision.networks import inputs_of
from experiments.vmoe import batches, outputs
from experiments.vmoe.experiment import make_model
from experiments.vmoe.routers import RelaxedExpertChoice, TokenChoice
from experiments.vmoe.suite import DEMO, SUITE
from tests.experiments.vmoe.tiny import random_params, tiny_config

GROUP = 10  # images in training, of 16 tokens; 8 experts
ONE_BLOCK = {"model__depth": 1, "moe__blocks": (0,)}
SHORT = DEMO | {
    "model.depth": 1,
    "moe.blocks": (0,),
    "batch_size": 80,
    "eval_batch_size": 40,
    "seeds": (0, 1),
    "steps": 20,
    "eval_every": 10,
    "checkpoint_every": 20,
    "optimizer.warmup_steps": 4,
}
# The relaxed router trains in test_exchange.py; it takes longer to compile.
RUN = SuiteRun("final-hard", SHORT, variant="small,router=hard")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A directory in which the suite has trained its one run, on one device, and drawn it; and the study of it."""
    path = tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        assert command.run_suite(SUITE, path, [RUN], [RUN], ["suite"]) == 0
        patch.setattr(batches, "SIZES", (1, GROUP))
        assert batches.main([str(path / RUN.name), f"--out={path / 'batches'}"]) == 0
    return path


def test_suite_run_learns_and_is_drawn(out):
    start, middle, end = metrics.read(out / RUN.name / "metrics.jsonl")
    assert start["test_precision_at_1"] == pytest.approx([10, 10], abs=5)
    assert end["test_precision_at_1"][0] > start["test_precision_at_1"][0] + 5
    np.testing.assert_allclose(end["test_error"], 100 - np.array(end["test_precision_at_1"]), atol=1e-4)
    for prefix in ("train", "test"):
        router = end[f"{prefix}_router"]["block_0"]
        assert min(router["support"]) == 44
        assert max(router["dropped_mass"]) < 20
    assert start["train_router"]["block_0"]["support"] == [None, None]  # nothing has been trained
    assert start["test_stability"] == {"block_0": [None, None]}
    assert all(0 < value < 100 for row in (middle, end) for value in row["test_stability"]["block_0"])
    assert "### Test after 20 steps" in (out / "table.md").read_text()


def test_training_batches_reproduce_the_run(out):
    """Finds that loads vary less in large batches where images are routed alone."""
    record = json.loads((out / "batches" / f"{RUN.name}.json").read_text())["run"]
    assert record["environment"]["experiment"] == "vmoe"
    rows = {(row["way"], row["images"]): row for row in record["rows"]}
    final, found = Workdir(out / RUN.name).read_summary()["final"], rows["batch", GROUP]
    count = len(data_lib.load(tiny_config()).evaluation["label"])
    # The last images of the test set have other neighbours.
    np.testing.assert_allclose(
        found["precision"], final["test_precision_at_1"]["per_seed"], atol=100 * (count % GROUP) / count + 1e-3
    )
    routing = final["test_router"]["block_0"]
    np.testing.assert_allclose(found["without"], 100 - np.array(routing["served_by_1"]["per_seed"]), atol=1)
    np.testing.assert_allclose(rows["alone", GROUP]["tokens"], record["config"]["router"]["k"], rtol=0.2)
    assert 0 < max(record["changed"]) < 100
    assert (np.array(rows["alone", GROUP]["variation"]) < rows["alone", 1]["variation"]).all()


def test_values_of_a_row_by_hand():
    served = np.array([[[3, 0]], [[5, 2]], [[1, 1]]])  # images, one layer, two experts; the third makes no batch of two
    found = batches.Found(np.zeros(3), served, np.array([[0.1], [0.3], [0.9]]), np.array([[4.0], [8.0], [1.0]]))
    values = batches._measure(found, 2, 0.5, 5)
    expected = {"tokens": 5 / 0.5, "variation": 3 / 5, "without": 20.0, "dropped": 100 * (1 - (5 + 2) / 12)}
    assert values == pytest.approx(expected)


def test_alone_predictions_ignore_the_batch():
    config = tiny_config("small,router=relaxed", **ONE_BLOCK)
    data = data_lib.load(config)
    params, router = random_params(config, data), batches.trained_router(config)
    thresholds = batches._thresholds(config, data, router)(params)
    ones, many = (batches._evaluation(config, data, router, size, alone=True)(params, thresholds) for size in (1, 40))
    for field in ("classes", "served", "without"):
        np.testing.assert_array_equal(getattr(ones, field), getattr(many, field))
    assert ones.served.sum() > 0


def test_thresholds_average_training_groups(monkeypatch):
    config = tiny_config("small,router=hard", router__score="logits", **ONE_BLOCK)
    data = data_lib.load(config)
    params = random_params(config, data)
    router = batches.trained_router(config)
    monkeypatch.setattr(batches, "THRESHOLD_IMAGES", 55)  # five groups and a part of one
    (threshold,) = batches._thresholds(config, data, router)(params).values()
    network = make_model(config, 10, router)
    prepared = inputs_of(config).prepare_stored(jnp.asarray(data.train["image"][:50]))
    (seen,) = jax.jit(lambda params: outputs.router_logits(network, params, prepared))(params).values()
    ordered = np.sort(np.asarray(seen.clean), axis=1)  # [G, S, E]
    np.testing.assert_allclose(threshold.tau, ordered[:, -config.router.k].mean(axis=0), rtol=1e-5)
    assert len(ordered) == 5


def test_k_and_slots_are_in_proportion():
    half = batches.proportional(RelaxedExpertChoice(5, 7, 0.3), Fraction(1, 2))
    assert (half.k, half.capacity, half.lam) == (2.5, 4, 0.3)
    assert batches.proportional(RelaxedExpertChoice(5, 5, 0.0), Fraction(1, 2)) == RelaxedExpertChoice(3, 3, 0.0)
    assert batches.proportional(TokenChoice(2, 28), Fraction(1024, 25)) == TokenChoice(2, 1147)


@pytest.mark.parametrize("fields", [{"router__dykstra": 10}, {"router__lam__schedule": "geometric"}])
def test_unsupported_runs_are_refused(tmp_path, fields):
    with pytest.raises(UsageError, match=r"config\.router\.name=.* exact mask"):
        batches.trained_router(tiny_config("small,router=relaxed", **fields))
    with pytest.raises(UsageError, match="is not done, or has no checkpoint"):
        batches.study(str(tmp_path), (1, 2))
