"""Checks and comparison of configs."""

import pytest

from experiments.core.config import differences, require, to_json
from experiments.core.errors import UsageError
from tests.experiments.support import small_config


def test_require_names_field_value_and_what_is_allowed():
    with pytest.raises(UsageError, match=r"config\.epochs=-1 .* must be positive"):
        require(False, "epochs", -1, "positive")


def test_equal_configs_do_not_differ():
    assert differences(to_json(small_config()), to_json(small_config())) == []


def test_differences_name_field_saved_and_asked():
    saved, asked = to_json(small_config()), to_json(small_config(lam__start=0.5, seeds=(0, 2)))
    assert differences(saved, asked) == [
        "config.lam.start (saved 0.0001, asked 0.5)",
        "config.seeds (saved [0, 1], asked [0, 2])",
    ]


def test_a_field_that_only_one_has_is_a_difference():
    assert differences({"a": 1}, {}) == ["config.a (saved 1, asked nothing)"]
