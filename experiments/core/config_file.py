"""The config that a command line asks for: the file that --config names, with the overrides of its fields."""

import ast
import difflib
import importlib.machinery
import importlib.util
import os
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_collections

from experiments.core.errors import UsageError


def split(argv: Sequence[str]) -> tuple[list[str], list[tuple[str, str | None]], list[str]]:
    """Splits the arguments of a command line into those of `--config`, those of its fields, and the rest.

    Fields come as `("config.seeds", "(0, 1)")`, in order; a flag that stands alone, as `--config.debias`, has no value.
    """
    paths: list[str] = []
    overrides: list[tuple[str, str | None]] = []
    rest: list[str] = []
    arguments = list(argv)
    while arguments:
        argument = arguments.pop(0)
        match = re.fullmatch(r"--?(no)?(config(?:\.[^=]*)?)(?:=(.*))?", argument, re.DOTALL)
        if not match:
            rest.append(argument)
            continue
        no, name, value = match.groups()
        if value is None and not no and arguments and not arguments[0].startswith("--"):
            value = arguments.pop(0)
        if name == "config":
            paths.append(value or "")
        else:
            overrides.append((name, "False" if no else value))
    return paths, overrides, rest


def load(argument: str) -> ml_collections.ConfigDict:
    """The config of PATH[:VARIANT].

    Raises:
      UsageError: there is no such file, or it makes no config.
    """
    path, colon, variant = argument.partition(":")
    return of_file(path, variant if colon else None)


def of_file(path: str | Path, variant: str | None = None) -> ml_collections.ConfigDict:
    """The config that a file makes, of a variant if it has one; otherwise as `load`."""
    path = str(path)
    argument = path if variant is None else f"{path}:{variant}"
    try:
        if path and Path(path).is_dir():
            raise UsageError(f"--config={argument}: {path} is a directory, and no config file")
        if not Path(path).is_file():
            raise UsageError(f"--config={argument}: there is no such file")
        config = module_of(path).get_config(*([] if variant is None else [variant]))
    except UsageError:
        raise
    # Whatever a file may do that is run as a program.
    except (Exception, SystemExit) as error:
        # A syntax error says the line itself.
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        where = f" (line {lines[-1]})" if lines else ""
        raise UsageError(
            f"--config={argument} is no config that can be read: {type(error).__name__}: {error}{where}"
        ) from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise UsageError(
            f"--config={argument} is no config: its get_config() must return an ml_collections.ConfigDict, "
            f"not {type(config).__name__}"
        )
    return config


def module_of(path: str) -> ModuleType:
    """Runs a config file, which may raise anything, and returns it as a module."""
    spec = importlib.util.spec_from_loader("config_file", importlib.machinery.SourceFileLoader("config_file", path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise UsageError(f"--config={path} is no config file: it has no function get_config()")
    return module


def overridden(
    base: ml_collections.ConfigDict, overrides: Sequence[tuple[str, str | None]]
) -> ml_collections.ConfigDict:
    """A copy of a config with some fields set, as `("config.lam.start", "0.1")`; of several values the last one counts.

    Fields keep their types. A single value of a tuple is a tuple of it alone; None is a value only of what is None in
    the config file; a `~` in front of a string is the home of the user, as shells have it.

    Raises:
      UsageError: there is no such field, or it cannot have the value; the message says what there is in its stead.
    """
    config = base.copy_and_resolve_references()
    for name, value in overrides:
        node, field = _place(base, name, value)
        kind = node.get_type(field)
        if kind not in _KINDS:
            raise UsageError(
                f"--{name} is not allowed: the config has a {kind.__name__} there, which no option can set"
            )
        allowed, parse = _KINDS[kind]
        value = "True" if value is None and kind is bool else value or ""
        try:
            parsed = None if value == "None" and node[field] is None else parse(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise UsageError(f"{name}={value!r} is not allowed: it must be {allowed}") from error
        config.update_from_flattened_dict({name.removeprefix("config."): parsed})
    return config


def _place(config: ml_collections.ConfigDict, name: str, value: str | None) -> tuple[ml_collections.ConfigDict, str]:
    """The part of a config in which the field of that name is, and what it is called there."""
    parts = name.split(".")[1:]
    above, node = config, config
    for depth, part in enumerate(parts, 1):
        if not isinstance(node, ml_collections.ConfigDict):
            raise UsageError(f"--{name}: config.{'.'.join(parts[: depth - 1])} is a value, and has no field {part!r}")
        if part not in node:
            close = difflib.get_close_matches(part, [str(field) for field in node], 1)
            hint = f"did you mean {close[0]}?" if close else "it has " + ", ".join(sorted(node))
            raise UsageError(f"--{name}: the config has no field {part!r}: {hint}")
        above, node = node, node[part]
    if isinstance(node, ml_collections.ConfigDict):
        option = f"--{name}" if value is None else f"--{name}={value}"
        fields = ", ".join(f"--{name}.{field}" for field in node)
        raise UsageError(f"{option} is not allowed: {name} has fields of its own, to be set one by one: {fields}")
    return above, parts[-1]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError("no truth value")
    return text.lower() in ("true", "1")


def _tuple(text: str) -> tuple[Any, ...]:
    value = ast.literal_eval(text.strip())
    if isinstance(value, set | dict):
        raise ValueError(f"a {type(value).__name__}, not a tuple")
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _text(text: str) -> str:
    if text == "None":
        raise ValueError("no string")
    return os.path.expanduser(text)


_KINDS: dict[type, tuple[str, Callable[[str], Any]]] = {
    bool: ("True or False", _boolean),
    int: ("an integer", int),
    float: ("a number", float),
    str: ("a string", _text),
    tuple: ("a tuple such as (1, 2)", _tuple),
}
