"""Checks and comparison of configs."""

import pytest

from experiments.core.config import differences, parse_options, require, to_json
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


DEFAULTS = {"loss": "topk", "p": "2", "small": "no"}


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("", {}),
        ("p=4/3", {"p": "4/3"}),
        ("small", {"small": "yes"}),
        ("small,loss=xent", {"small": "yes", "loss": "xent"}),
        ("small=no,loss=a=b", {"loss": "a=b"}),
        ("p=1,,p=2", {}),
    ],
)
def test_options_are_strings_over_their_defaults(argument, options):
    assert parse_options(argument, DEFAULTS) == DEFAULTS | options


@pytest.mark.parametrize("part", ["q=1", "loss", "loss=", "=xent", " p=2"])
def test_an_option_without_a_name_or_a_value_is_named(part):
    with pytest.raises(
        UsageError, match=rf"^'{part}' is not one of OPTION=VALUE, where OPTION is one of loss, p, small$"
    ):
        parse_options(f"small,{part}", DEFAULTS)
