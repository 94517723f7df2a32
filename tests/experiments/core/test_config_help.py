"""What --help reads from a config file: its comments, beside the fields that they are about."""

import pytest

from experiments.core import config_help
from experiments.core.errors import UsageError

CONFIG = '''"""Trains a thing.

And more of it.
"""

import ml_collections

KINDS = {"round": 1, "square": 2}
CHOICES = {"kind": KINDS}
OPTIONS = {
    "kind": "round",  # of what there is
    "small": "no",
}


def get_config(argument=""):
    config = ml_collections.ConfigDict()
    # How long
    # it takes.
    config.steps = 10  # more is better
    config.parts = ml_collections.ConfigDict({"left": 1, "right": "#"})
    # Not said of a field that is not there.
    config.lam = ml_collections.ConfigDict()  # in the units of the logits
    config.lam.start = (
        0.5  # over two lines
    )
    if "small" in argument:
        config.only_small = True  # of the small one
    config.update({"steps": 10 if argument else 20})
    return config
'''


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "thing.py"
    path.write_text(CONFIG)
    return str(path)


def test_each_field_has_its_value_and_its_comments(path):
    said = config_help.lines(path)
    assert said[0] == "Trains a thing."
    assert said[said.index("  How long it takes.") + 1].split() == ["steps", "=", "20", "more", "is", "better"]
    assert "  parts.left = 1" in said
    assert "  parts.right = '#'" in said
    assert [line.split() for line in said if "lam" in line] == [
        ["lam", "in", "the", "units", "of", "the", "logits"],
        ["lam.start", "=", "0.5", "over", "two", "lines"],
    ]
    assert not [line for line in said if "only_small" in line]


def test_options_come_with_what_they_may_be(path):
    rows = [line.split() for line in config_help.lines(path)]
    assert ["kind=round", "one", "of", "round,", "square;", "of", "what", "there", "is"] in rows
    assert ["small=no"] in rows


def test_values_are_those_of_the_variant(path):
    said = config_help.lines(f"{path}:small")
    assert [line.split("=")[0].strip() for line in said if "of the small one" in line] == ["only_small"]
    assert any(line.startswith("  steps = 10") for line in said)


def test_a_file_that_is_not_there_is_a_mistake_in_one_line(tmp_path):
    with pytest.raises(UsageError, match="there is no such file"):
        config_help.lines(f"{tmp_path}/none.py")
