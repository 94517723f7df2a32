"""The names that users import, and how they call them: a change here is one of their programs."""

import inspect
from pathlib import Path

import ops

PUBLIC = Path(__file__).parent / "api.txt"


def _described(package, prefix):
    for name in sorted(package.__all__):
        value = getattr(package, name)
        if inspect.ismodule(value):
            yield from _described(value, f"{prefix}{name}.")
        elif callable(value):
            parameters = inspect.signature(value).parameters.values()
            bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
            yield f"{prefix}{name}{inspect.Signature(bare)}"
        else:
            yield f"{prefix}{name}"


def test_the_public_names_and_signatures_are_those_written_down():
    assert list(_described(ops, "")) == PUBLIC.read_text().splitlines()
