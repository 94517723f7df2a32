"""What each section measures, beside masks."""

import json
import pickle

import pytest

from experiments.vmoe.experiment import RECIPE, routing_shape
from scripts.bench import training
from scripts.bench.__main__ import GROUPS, group_of
from scripts.bench.timing import Contest, Summary


@pytest.mark.parametrize("scale", ["small", "cpu", "device"])
@pytest.mark.parametrize("name", GROUPS)
def test_cases_are_picklable_and_unique(name, scale):
    group = group_of(name, scale)
    json.dumps(group.settings)
    names = [case.name for case in group.cases]
    assert len(names) == len(set(names)) >= 1
    for case in group.cases:
        pickle.dumps(case.measure)
        assert case.minutes <= 10


def test_overhead_is_relative_to_baseline():
    times = {"hard": Summary(1000.0, 900.0, 1100.0, 5), "relaxed": Summary(1100.0, 1000.0, 1200.0, 5)}
    alone = {"hard": Summary(4.0, 4.0, 4.0, 5), "relaxed": Summary(9.0, 9.0, 9.0, 5)}
    rows = training.overheads(times, alone, "hard", parts=2)
    assert rows["hard"]["ratio_of_steps"] == rows["hard"]["one_plus_extra_over_step"] == 1.0
    assert rows["relaxed"]["ratio_of_steps"] == pytest.approx(1.1)
    assert rows["relaxed"]["one_plus_extra_over_step"] == pytest.approx(1.01)
    assert training.overheads(times, {"relaxed": alone["relaxed"]}, "hard") == {}
    assert list(training.overheads(times, {"hard": alone["hard"]}, "hard")) == ["hard"]


def test_timed_routers_use_the_papers_shape(monkeypatch):
    for name in training.ROUTERS:
        config = training.router_config(name, 224)
        RECIPE.validate(config)
        shape = routing_shape(config)
        assert (shape.tokens, shape.k, config.moe.num_experts, len(config.moe.blocks)) == (400, 28, 32, 2)
    assert routing_shape(training.router_config("relaxed, 32 slots", 224)).capacity == 32
    # The others are one of the paper's with other options; 64 pixels make groups of 32 tokens.
    some = {name: training.ROUTERS[name] for name in (training.HARD, "token choice")}
    monkeypatch.setattr(training, "ROUTERS", some)
    contest = Contest()
    assert set(training.routers_alone(1, 64, contest)) == {*some, *training.MASKS, *training.DISPATCHERS}
    assert contest.failed == {}
