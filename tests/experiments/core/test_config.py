"""Comparison of configs, and options of their variants."""

import ml_collections
import pytest

from experiments.core.config import differences, overridden, parse_options, to_json
from experiments.core.errors import UsageError
from tests.experiments.support import small_config

DEFAULTS = {"loss": "topk", "p": "2", "small": "no"}


def test_differences_name_saved_and_asked():
    saved, asked = to_json(small_config()), to_json(small_config(lam__start=0.5, seeds=(0, 2)))
    assert differences(saved, to_json(small_config())) == []
    assert differences(saved, asked) == [
        "config.lam.start (saved 0.0001, asked 0.5)",
        "config.seeds (saved [0, 1], asked [0, 2])",
    ]
    assert differences({"a": 1}, {}) == ["config.a (saved 1, asked nothing)"]


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("", {}),
        ("small,loss=xent", {"small": "yes", "loss": "xent"}),
        ("small=no,loss=a=b", {"loss": "a=b"}),
        ("p=1,,p=2", {}),
    ],
)
def test_options_override_their_defaults(argument, options):
    assert parse_options(argument, DEFAULTS) == DEFAULTS | options


@pytest.mark.parametrize("part", ["q=1", "loss", "loss=", "=xent", " p=2"])
def test_invalid_options_are_named(part):
    with pytest.raises(UsageError, match=rf"^'{part}' is not one of OPTION=VALUE, .* loss, p, small$"):
        parse_options(f"small,{part}", DEFAULTS)


def test_list_fields_cannot_be_overridden():
    config = ml_collections.ConfigDict({"widths": [1, 2]})
    with pytest.raises(UsageError, match=r"config\.widths=.* list"):
        overridden(config, ["--config.widths=[3]"])
