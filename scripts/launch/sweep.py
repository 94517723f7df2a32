"""Sweeps: `config.lam.start=1e-4,1e-3` and `config.seeds=range(5)`, and the product of several.

Values are separated by commas outside brackets and quotes, and taken as they are: `(0, 1),(2, 3)`
are two values. `range(STOP)`, `range(START, STOP)` and `range(START, STOP, STEP)` stand for integers.
"""

import hashlib
import itertools
import re
from collections.abc import Sequence

from experiments.core.errors import UsageError

Axis = tuple[str, list[str]]  # a field, such as config.lam, and its values
Point = tuple[str, tuple[str, ...]]  # a name, which is that of its directory, and overrides

_CLOSING = {"(": ")", "[": "]", "{": "}", "'": "'", '"': '"'}


def points(sweeps: Sequence[str]) -> list[Point]:
    """The product of all sweeps; a single nameless point without any.

    Raises:
      UsageError: a sweep is not of the form FIELD=VALUES, or gives a field or a value twice.
    """
    axes = [_axis(sweep) for sweep in sweeps]
    fields = [field for field, _ in axes]
    for field in fields:
        if fields.count(field) > 1:
            raise UsageError(f"--sweep: {field} is given twice")
    found = []
    for values in itertools.product(*(values for _, values in axes)):
        chosen = list(zip(fields, values, strict=True))
        found.append((_name(chosen, fields), tuple(f"--{field}={value}" for field, value in chosen)))
    return found


def _axis(sweep: str) -> Axis:
    field, equals, values = sweep.partition("=")
    field = field.strip().removeprefix("--")
    if not equals or not re.fullmatch(r"config(\.\w+)+", field):
        raise UsageError(f"--sweep={sweep!r} is not of the form config.FIELD=VALUE,VALUE,...")
    integers = _range(values)
    parsed = _split(values) if integers is None else integers
    if not parsed or len(set(parsed)) < len(parsed) or "" in parsed:
        raise UsageError(f"--sweep={sweep!r}: there must be values, which differ, and none may be empty")
    return field, parsed


def _range(values: str) -> list[str] | None:
    match = re.fullmatch(r"\s*range\(\s*(-?\d+(?:\s*,\s*-?\d+){0,2})\s*\)\s*", values)
    try:
        return [str(value) for value in range(*map(int, match[1].split(",")))] if match else None
    except ValueError as error:  # a step of 0
        raise UsageError(f"--sweep: {values}: {error}") from error


def _split(values: str) -> list[str]:
    parts, expected = [""], ""  # closing brackets, or a quote, that are to come, the next one last
    for character in values:
        quoted = expected[-1:] in ("'", '"')
        if character == "," and not expected:
            parts.append("")
            continue
        parts[-1] += character
        if character == expected[-1:]:
            expected = expected[:-1]
        elif not quoted:
            expected += _CLOSING.get(character, "")
    if expected:
        raise UsageError(f"--sweep: {values}: a {expected[-1]} is missing")
    return [part.strip() for part in parts]


def _name(chosen: Sequence[tuple[str, str]], fields: Sequence[str]) -> str:
    """`lam.start=1e-3,p=2`: as much of the fields as tells them apart, and values in characters that need no quotes."""
    parts = []
    for field, value in chosen:
        plain = re.sub(r"[^A-Za-z0-9._+-]+", "_", value).strip("_")
        if plain != value:  # another value may look the same
            plain = f"{plain[:40]}-{hashlib.sha256(value.encode()).hexdigest()[:4]}".lstrip("-")
        short = field.rpartition(".")[2]
        unique = sum(other.rpartition(".")[2] == short for other in fields) == 1
        parts.append(f"{short if unique else field.removeprefix('config.')}={plain}")
    return ",".join(parts)
