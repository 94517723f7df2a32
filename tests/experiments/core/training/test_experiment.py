"""Lengths of runs, and what is due after which step."""

import ml_collections
import pytest

from experiments.core.errors import UsageError
from experiments.core.training.experiment import Plan, validate_length


def plan_of(num_train=1000, **fields):
    config = ml_collections.ConfigDict({"dataset": "digits", "batch_size": 300, **fields})
    validate_length(config)
    return Plan.of(config, num_train)


def test_steps_have_a_row_at_the_end():
    made = plan_of(steps=14, eval_every=4, checkpoint_every=6, steps_per_dispatch=2)
    assert [step for step in range(15) if made.is_row(step)] == [0, 4, 8, 12, 14]
    assert [made.last_row(step) for step in (0, 3, 6, 13, 14)] == [0, 0, 4, 12, 14]
    assert made.describe(5) == "step 5"
    assert [made.epochs(step) for step in (0, 3, 4)] == [0, 1, pytest.approx(4 / 3, abs=1e-4)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"epochs": 1, "steps": 1},
        {"epochs": 2},
        {"epochs": 1.5, "checkpoint_every": 1},
        {"steps": 3, "eval_every": 1},
        {"steps": 3, "eval_every": 2, "checkpoint_every": 2, "steps_per_dispatch": 2},
        {"epochs": 1, "checkpoint_every": 1, "batch_size": 1001},
    ],
)
def test_lengths_that_cannot_be(fields):
    with pytest.raises(UsageError):
        plan_of(**fields)
