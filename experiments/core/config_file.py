"""The config that a command line asks for: the file that --config names, and whether the overrides fit what it makes.

`ml_collections` loads the file and sets the fields. It is asked here what would go wrong, since it says so in
tracebacks, or in the words of whatever went wrong inside of it, or not at all.
"""

import ast
import difflib
import importlib.machinery
import importlib.util
import os
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_collections
from absl import flags

from experiments.core.errors import UsageError

_KINDS = {bool: "True or False", int: "an integer", float: "a number", str: "a string", tuple: "a tuple such as (1, 2)"}


class TupleParser(flags.ArgumentParser):
    """Tuples as Python writes them, or lists; a single value is a tuple of it alone.

    In the place of the parser of `ml_collections`, for which a tuple that is given twice is both, one after the other:
    here the last one counts, as of any other field.
    """

    def parse(self, argument: Any) -> tuple[Any, ...]:
        """The tuple of a string; the default of the field, a tuple, as it is."""
        if isinstance(argument, tuple):
            return argument
        try:
            value = ast.literal_eval(argument.strip())
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise ValueError("not a tuple as Python writes it") from error
        if isinstance(value, set | dict):
            raise ValueError(f"a {type(value).__name__}, not a tuple")
        return tuple(value) if isinstance(value, tuple | list) else (value,)

    def flag_type(self) -> str:
        """As --help has it."""
        return "tuple"


class TextParser(flags.ArgumentParser):
    """Strings: None is no string, as in a config file, and a `~` in front the home of the user, as shells have it."""

    def parse(self, argument: str) -> str | None:
        """The value of a field; `check_override` says whether it may be None."""
        return None if argument == "None" else os.path.expanduser(argument)


def given(argv: Sequence[str]) -> list[tuple[str, str | None]]:
    """The flags of an expanded command line that concern the config, as `("config.seeds", "(0, 1)")`, in order."""
    found: list[tuple[str, str | None]] = []
    for place, argument in enumerate(argv):
        if argument == "--":
            break
        match = re.fullmatch(r"--?(no)?(config(?:\.[^=]*)?)(?:=(.*))?", argument, re.DOTALL)
        if not match:
            continue
        no, name, value = match.groups()
        if value is None:
            follows = argv[place + 1] if place + 1 < len(argv) else None
            value = "False" if no else follows
        found.append((name, value))
    return found


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
    """What a config file defines; it is run for that, and may raise anything."""
    spec = importlib.util.spec_from_loader("config_file", importlib.machinery.SourceFileLoader("config_file", path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise UsageError(f"--config={path} is no config file: it has no function get_config()")
    return module


def check_override(config: ml_collections.ConfigDict, name: str, value: str | None) -> None:
    """Checks that `name`, as "config.lam.start", is a field that a value can be given.

    Raises:
      UsageError: it is not; the message says what there is in its stead.
    """
    option = f"--{name}" if value is None else f"--{name}={value}"
    parts = name.split(".")
    node: Any = config
    for depth, part in enumerate(parts[1:], 1):
        if not isinstance(node, ml_collections.ConfigDict):
            raise UsageError(f"--{name}: {'.'.join(parts[:depth])} is a value, and has no field {part!r}")
        if part not in node:
            close = difflib.get_close_matches(part, [str(field) for field in node], 1)
            hint = f"did you mean {close[0]}?" if close else "it has " + ", ".join(sorted(node))
            raise UsageError(f"--{name}: the config has no field {part!r}: {hint}")
        node = node[part]
    if isinstance(node, ml_collections.ConfigDict):
        fields = ", ".join(f"--{name}.{field}" for field in node)
        raise UsageError(f"{option} is not allowed: {name} has fields of its own, to be set one by one: {fields}")
    if value == "None" and isinstance(node, str):
        raise UsageError(f"{name}=None is not allowed: it must be a string")


def expected(config: ml_collections.ConfigDict, name: str) -> str:
    """What the value of a field must be, in words."""
    *above, last = name.split(".")[1:]
    node = config
    for part in above:
        node = node[part]
    return _KINDS.get(node.get_type(last), "another")
