"""The training loop in this process, in epochs, on a toy experiment."""

import contextlib
import dataclasses
import json

import jax
import jax.numpy as jnp
import optax
import pytest

from experiments.core.errors import UsageError
from experiments.core.input import dataset as data
from experiments.core.record import environment, metrics
from experiments.core.record.workdir import Workdir
from experiments.core.training import train
from experiments.core.training.experiment import Experiment, Recipe
from tests.experiments.support import small_config


def toy(fatal: float) -> Recipe:
    """Learns the mean label; a seed whose `fate` exceeds `fatal` gets NaN in the second half."""

    def loss(params, batch, key, progress):
        target = batch["label"].astype(jnp.float32).mean()
        value = jnp.square(params["mean"] - target) + 0.01 * jax.random.normal(key) * params["mean"]
        doomed = (params["fate"] > fatal) & (progress >= 0.5)
        value = value * jnp.where(doomed, jnp.nan, 1.0)
        return value, {"loss": value}

    experiment = Experiment(
        init=lambda key: {"mean": jnp.zeros(()), "fate": jax.random.uniform(key), "steps": jnp.zeros(())},
        loss=loss,
        evaluate=lambda params, examples, progress: {
            "error": params["mean"],
            "fate": params["fate"],
            "progress": progress,
            "updates": params["steps"],
        },
        optimizer=optax.sgd(0.1),
        after_update=lambda params, state, gradient, progress: (params | {"steps": params["steps"] + 1.0}, state),
    )
    return Recipe("toy", lambda config: None, lambda config, data: experiment)


def rows_of(recipe, workdir, **fields):
    train.run(recipe, small_config(**fields), workdir)
    return metrics.read(workdir / "metrics.jsonl")


def test_jax_options_do_not_change_results(tmp_path, monkeypatch, capsys):
    plain = rows_of(toy(fatal=2.0), tmp_path / "plain")
    others = {"jax_default_prng_impl": "rbg", "jax_threefry_partitionable": False, "jax_random_seed_offset": 7}
    before = {name: getattr(jax.config, name) for name in others}
    assert "no commit" not in capsys.readouterr().out
    monkeypatch.setattr(environment, "_ROOT", tmp_path)
    try:
        for name, value in others.items():
            jax.config.update(name, value)
        rows = rows_of(toy(fatal=2.0), tmp_path / "other")
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert [row["fate"] for row in rows] == [row["fate"] for row in plain]
    assert [row["train_loss"] for row in rows] == [row["train_loss"] for row in plain]
    assert "no commit of the code is recorded" in capsys.readouterr().out


def test_diverged_seeds_leave_others_alone(tmp_path):
    seeds = tuple(range(8))
    sound = rows_of(toy(fatal=2.0), tmp_path / "sound", seeds=seeds, epochs=4)
    rows = rows_of(toy(fatal=0.5), tmp_path / "some", seeds=seeds, epochs=4)
    doomed = [fate > 0.5 for fate in sound[0]["fate"]]
    assert 0 < sum(doomed) < 8
    assert [row["diverged"] for row in rows] == [[False] * 8] * 3 + [doomed] * 2
    for name in ("test_error", "train_loss"):
        survivors = [None if bad else value for bad, value in zip(doomed, sound[-1][name], strict=True)]
        assert rows[-1][name] == survivors
    assert json.loads((tmp_path / "some" / "summary.json").read_text())["diverged"] == sum(doomed)


def test_progress_runs_from_zero_to_one(tmp_path):
    rows = rows_of(toy(fatal=2.0), tmp_path / "w", epochs=4, split="validation", validation_size=300)
    assert [row["progress"] for row in rows] == [[value] * 2 for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert [row["updates"][0] for row in rows] == [row["step"] for row in rows]
    assert "valid_error" in rows[-1]
    assert "test_error" not in rows[-1]


def test_changed_data_are_refused_on_resume(tmp_path):
    def on(fingerprint):
        recipe = toy(fatal=2.0)
        return dataclasses.replace(
            recipe, load=lambda config: dataclasses.replace(data.load(config), fingerprint=fingerprint)
        )

    for fingerprint in ("own/1.0.0 aa", "own/1.0.0 aa", "own/1.0.0 bb"):
        refused = pytest.raises(UsageError, match=r"own/1\.0\.0 aa, .* own/1\.0\.0 bb:")
        with refused if fingerprint.endswith("bb") else contextlib.nullcontext():
            train.run(on(fingerprint), small_config(epochs=2), tmp_path / "w")
        (tmp_path / "w" / "summary.json").unlink(missing_ok=True)  # as if it had been stopped before
    environment = json.loads((tmp_path / "w" / "environment.json").read_text())
    launches = [environment, *environment["resumed"]]
    assert [launch["data"] for launch in launches] == ["own/1.0.0 aa"] * 2
    # The checkpoint knows, too.
    (tmp_path / "w" / "environment.json").unlink()
    with pytest.raises(UsageError, match=r"own/1\.0\.0 aa, .* own/1\.0\.0 bb"):
        train.run(on("own/1.0.0 bb"), small_config(epochs=2), tmp_path / "w")


def test_a_workdir_in_use_is_refused(tmp_path):
    claimed = Workdir(tmp_path / "w").claim(small_config())
    with claimed, pytest.raises(UsageError, match="in use by another process"):
        train.run(toy(fatal=2.0), small_config(), tmp_path / "w")


def test_rows_without_config_are_kept(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("precious\n")
    with pytest.raises(UsageError, match=r"without its config\.json"):
        train.run(toy(fatal=2.0), small_config(), tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == "precious\n"


def test_too_little_memory_is_one_line(tmp_path, monkeypatch):
    def exhausted(*arguments):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 81604378624 bytes."
        )

    monkeypatch.setattr(train, "train", exhausted)
    with pytest.raises(UsageError, match=r"config\.accumulate=2 .* more, such as 4: .* 25 examples"):
        train.run(toy(fatal=2.0), small_config(accumulate=2, batch_size=50), tmp_path / "w")
