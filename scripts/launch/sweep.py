"""Sweeps: `config.lam.start=1e-4,1e-3` and `config.epochs=range(10,40,10)`, and the product of several.

Values are separated by commas outside brackets, and taken as they are: `(0, 1),(2, 3)` are two values. `range(...)`
stands for integers, as in Python.
"""

import hashlib
import itertools
import re
from collections.abc import Sequence

from experiments.core.errors import UsageError

Point = tuple[str, tuple[str, ...]]  # a name, which is that of its directory, and overrides


def points(sweeps: Sequence[str]) -> list[Point]:
    """The product of all sweeps; a single nameless point without any.

    Raises:
      UsageError: a sweep is not of the form FIELD=VALUES, or gives a field or a value twice.
    """
    axes = dict(map(_axis, sweeps))
    if len(axes) < len(sweeps):
        raise UsageError("--sweep: a field is given twice")
    product = []
    for values in itertools.product(*axes.values()):
        chosen = list(zip(axes, values, strict=True))
        name = ",".join(f"{field.removeprefix('config.')}={_plain(value)}" for field, value in chosen)
        product.append((name, tuple(f"--{field}={value}" for field, value in chosen)))
    return product


def _axis(sweep: str) -> tuple[str, list[str]]:
    """A field, such as config.lam, and its values."""
    field, _, text = sweep.strip().removeprefix("--").partition("=")
    values = [value.strip() for value in re.split(r",(?![^(\[]*[)\]])", text)]
    if integers := re.fullmatch(r"range\(([-\d, ]+)\)", text.strip()):
        try:
            values = [str(value) for value in range(*map(int, integers[1].split(",")))]
        except (TypeError, ValueError) as error:
            raise UsageError(f"--sweep={sweep!r}: {error}") from error
    closed = all(value.count(left) == value.count(right) for value in values for left, right in ("()", "[]"))
    named = re.fullmatch(r"config(\.\w+)+", field)
    if not (named and closed and values and all(values) and text.isprintable()):
        raise UsageError(f"--sweep={sweep!r} is not of the form config.FIELD=VALUE,VALUE,...")
    if len(set(values)) < len(values):
        raise UsageError(f"--sweep={sweep!r} has a value twice")
    return field, values


def _plain(value: str) -> str:
    """A value in characters that need no quotes, with a digest where another value may look the same."""
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "_", value).strip("_")
    return plain if plain == value else f"{plain[:40]}-{hashlib.sha256(value.encode()).hexdigest()[:4]}".lstrip("-")
