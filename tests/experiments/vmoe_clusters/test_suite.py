"""The suites of the task: their runs are sound, compare like with like, and run to the end."""

import jax
import pytest

from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.vmoe_clusters.kinds import NAMES
from experiments.vmoe_clusters.suite import (
    COSTLY,
    FINAL_SEEDS,
    LAMS,
    LONG,
    NOISE_OF_CHOICE,
    NOISES,
    RATE_OF_CHOICE,
    RATES,
    SUITE,
    SWEEP_SEEDS,
)
from tests.experiments.support import assert_sound, suite_configs
from tests.experiments.vmoe import tables
from tests.experiments.vmoe_clusters.tiny import TINY

RUNS = [SuiteRun(f"final-{name}", TINY, variant=f"router={name}") for name in ("best", "hard")]


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)


def test_the_suite_compares_like_with_like():
    made = suite_configs(SUITE, "clusters")
    assert len({(config.batch_size, config.task.groups) for _, config in made}) == 1
    tried: dict[str, set[tuple]] = {}
    final = []
    for run, config in made:
        if run.candidate_for:
            assert (config.split, config.seeds, config.task.noise) == ("validation", SWEEP_SEEDS, NOISE_OF_CHOICE)
            router, rate = config.router, config.optimizer.learning_rate
            setting = rate if run.best_of else (rate, router.score, router.lam.start)
            tried.setdefault(router.name, set()).add(setting)
        else:
            assert (config.split, config.seeds) == ("test", FINAL_SEEDS)
            final.append((config.task.noise, config.steps, config.router.name))
            assert config.steps != LONG or config.optimizer.learning_rate == RATE_OF_CHOICE
    assert not set(SWEEP_SEEDS) & set(FINAL_SEEDS)  # seeds are problems
    assert tried["annealed"] == tried["straight_through"] == tried["relaxed"]  # one grid
    assert len(tried["relaxed"]) == len(LAMS["gates"] + LAMS["logits"]) + len(RATES) - 1
    assert len(tried[COSTLY]) == len(LAMS["logits"]) + len(RATES) - 1
    assert all(set(RATES) - {RATE_OF_CHOICE} < found for found in tried.values())
    short = {config.steps for run, config in made if run.candidate_for}.pop()
    at_noises = [(noise, short, name) for noise in NOISES for name in NAMES]
    longer = [(NOISE_OF_CHOICE, LONG, name) for name in NAMES if name != COSTLY]
    assert sorted(final) == sorted(at_noises + longer)


def test_a_suite_trains_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert command.run_suite(SUITE, tmp_path, RUNS, RUNS, ["suite"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "2 of 2 runs done in " in out
    lines = (tmp_path / "table.md").read_text().splitlines()
    (row,) = tables.read(lines, "Test: loss over that of the best assignment, %")
    assert row["router"] == "hard, gates"
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"excess", "recovery"}
