"""Configs: the file that --config names, overrides and checks of its fields, and comparison of two configs."""

import ast
import difflib
import functools
import json
import operator
import os
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import ml_collections
import numpy as np

from experiments.core.errors import UsageError

# Changing these does not change the numbers; a resumed run may.
COMPUTED_HOW = ("mesh",)

_FLOAT32 = np.finfo(np.float32)
_INT32 = np.iinfo(np.int32)


def load(argument: str) -> ml_collections.ConfigDict:
    """The config of PATH[:VARIANT]; `UsageError` if there is no such file, or it makes no config."""
    path, colon, variant = argument.partition(":")
    try:
        config = namespace(path)["get_config"](*([variant] if colon else []))
        if not isinstance(config, ml_collections.ConfigDict):
            raise TypeError(f"get_config() must return an ml_collections.ConfigDict, not {type(config).__name__}")
        return config
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # whatever a file may do that is run as a program
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        where = f" (line {lines[-1]})" if lines else ""  # a syntax error says the line itself
        raise UsageError(f"--config={argument} cannot be read: {type(error).__name__}: {error}{where}") from error


def namespace(path: str) -> dict[str, Any]:
    """Runs a config file, which may raise anything; returns all that it defines."""
    if not Path(path).is_file():
        raise UsageError(f"--config={path}: there is no such file")
    names: dict[str, Any] = {"__name__": "config", "__file__": path}
    exec(_compiled(Path(path).read_bytes(), path), names)
    return names


@functools.lru_cache(maxsize=32)
def _compiled(source: bytes, path: str) -> CodeType:
    """Compiles a file once: a suite makes the configs of hundreds of runs of it."""
    return compile(source, path, "exec", dont_inherit=True)


def overridden(base: ml_collections.ConfigDict, overrides: Iterable[str]) -> ml_collections.ConfigDict:
    """A copy of a config with fields set by `--config.lam.start=0.1`; of several values the last one counts.

    Fields keep their types (else `UsageError`). A single value of a tuple is a tuple of it alone; None is a value only
    of what is None in the config file; a `~` in front of a string is the home of the user, as shells have it.
    """
    config, known = base.copy_and_resolve_references(), dict(leaves(base.to_dict()))
    for override in overrides:
        name, _, text = override.removeprefix("--").partition("=")
        if name not in known:
            inner = [field for field in known if field.startswith(f"{name}.")]
            close = ", ".join(inner or difflib.get_close_matches(name, known, 3) or known)
            raise UsageError(f"--{name}: the config has no field {name.rpartition('.')[2]!r}: did you mean {close}?")
        *parts, field = name.split(".")[1:]
        kind = functools.reduce(operator.getitem, parts, base).get_type(field)
        try:
            value = None if text == "None" and known[name] is None else _parsed(text, kind)
        except (ValueError, KeyError, SyntaxError, MemoryError, RecursionError, OverflowError) as error:
            allowed = _ALLOWED.get(kind, f"set in a config file alone, as a {kind.__name__}")
            raise UsageError(f"{name}={text!r} is not allowed: it must be {allowed}") from error
        config.update_from_flattened_dict({name.removeprefix("config."): value})
    return config


def _parsed(text: str, kind: type) -> Any:
    if kind is str and text != "None":
        return os.path.expanduser(text)
    if kind is bool:
        return {"true": True, "false": False, "1": True, "0": False, "": True}[text.lower()]
    value = ast.literal_eval(text.strip())
    if kind is tuple:
        return tuple(value) if isinstance(value, tuple | list) else (value,)
    if kind in (int, float) and type(value) in (int, kind):
        return kind(value)
    raise ValueError(f"no {kind.__name__}")


_ALLOWED = {bool: "True or False", int: "an integer", float: "a number", str: "a string", tuple: "a tuple as (1, 2)"}


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raises `UsageError` naming `field`, its `value` and what is `allowed`."""
    if not condition:
        raise UsageError(f"config.{field}={value!r} is not allowed: it must be {allowed}")


def require_one_of(field: str, value: Any, allowed: Collection[str]) -> None:
    """Raises `UsageError` unless `value` is one of the names in `allowed`."""
    require(value in allowed, field, value, "one of " + ", ".join(allowed))


def is_whole(value: Any) -> bool:
    """Returns whether it is an integer; `True` and `False` are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_wholes(holds: Callable[[Any], bool], field: str, values: Any, allowed: str) -> None:
    """Raises `UsageError` unless the values are integers in a tuple of which something `holds`."""
    integers = isinstance(values, tuple | list) and all(map(is_whole, values))
    require(integers and holds(values), field, values, allowed)


def require_plain(config: ml_collections.ConfigDict) -> None:
    """Raises `UsageError` unless every value can be computed with, as float32 and int32, and be kept as JSON."""
    for field, value in leaves(config.to_dict(), prefix=""):
        for entry in value if isinstance(value, tuple | list) else (value,):
            plain = entry is None or isinstance(entry, bool | int | float | str)
            require(plain, field, value, "a number, a string, True, False or None, or a tuple of these")
            if is_whole(entry):
                require(_INT32.min <= entry <= _INT32.max, field, value, "in [-2**31, 2**31)")
            elif isinstance(entry, float):
                in_range = entry == 0 or float(_FLOAT32.tiny) <= abs(entry) <= float(_FLOAT32.max)
                sizes = f"from {_FLOAT32.tiny:.3g} to {_FLOAT32.max:.3g}"
                require(in_range, field, value, f"finite, and 0 or of a size {sizes}, as float32 has it")


@contextmanager
def about(field: str, value: Any) -> Iterator[None]:
    """Within it, `UsageError` names the field."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"config.{field}={value!r}: {error}") from error


@contextmanager
def reading(experiment: str) -> Iterator[None]:
    """Within it, a field that the config lacks is a mistake of the user's: `UsageError`."""
    try:
        yield
    except (AttributeError, KeyError) as error:
        if "ml_collections" not in traceback.extract_tb(error.__traceback__)[-1].filename:
            raise
        name = re.search(r"\w+", str(error))
        missing = f"the config has no field {name[0] if name else ''!r}, which experiments.{experiment} reads"
        raise UsageError(f"{missing}: is it the config of another experiment?") from error


def to_json(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The config as it reads back from a JSON file (tuples become lists)."""
    return json.loads(json.dumps(config.to_dict(), allow_nan=False))


def leaves(tree: Mapping[str, Any], prefix: str = "config.", between: str = ".") -> Iterator[tuple[str, Any]]:
    """Yields the fields of a tree, each by `prefix` and the names that lead to it, as `("config.lam.start", 0.1)`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}{between}", between)
        else:
            yield prefix + name, value


def lines(config: ml_collections.ConfigDict) -> list[str]:
    """Every field of a config with its value, `config.lam.start = 0.1`."""
    return [f"{field} = {value!r}" for field, value in leaves(config.to_dict())]


def differences(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """One phrase per field in which two configs (in JSON form) differ."""
    old, new = dict(leaves(saved)), dict(leaves(asked))
    return [
        f"{field} (saved {json.dumps(old[field]) if field in old else 'nothing'}, "
        f"asked {json.dumps(new[field]) if field in new else 'nothing'})"
        for field in sorted(old.keys() | new.keys())
        if field not in old or field not in new or old[field] != new[field]
    ]


def differences_of_runs(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Lists the `differences` that make two runs of them: those in other fields than `COMPUTED_HOW`."""
    anyhow = dict.fromkeys(COMPUTED_HOW)
    return differences({**saved, **anyhow}, {**asked, **anyhow})


def parse_options(
    argument: str, defaults: Mapping[str, str], choices: Mapping[str, Collection[str]] | None = None
) -> dict[str, str]:
    """Parses the options after the colon of a config's path, "loss=topk,p=4/3", into strings over `defaults`.

    An option whose default is "no" may go without a value: its name then stands for "yes", and there is no other. The
    other options take what `choices` has for them, or anything. Raises `UsageError` for all else.
    """
    options = dict(defaults)
    for part in filter(None, argument.split(",")):
        name, _, value = part.partition("=")
        if not value and defaults.get(name) == "no":
            value = "yes"
        if name not in defaults or not value:
            raise UsageError(f"{part!r} is not one of OPTION=VALUE, where OPTION is one of " + ", ".join(defaults))
        options[name] = value
    yes_or_no = {name: ("yes", "no") for name, default in defaults.items() if default == "no"}
    for name, allowed in {**(choices or {}), **yes_or_no}.items():
        if options[name] not in allowed:
            raise UsageError(f"{name}={options[name]} is not allowed: it must be one of " + ", ".join(allowed))
    return options
