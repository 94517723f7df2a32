"""What `--help` says of a config file: its variants, and every field with its value and the comment beside it.

The comments in the file are the one place where fields are described; they are read from there. Python's own tokenizer
and parser find them, so a comment belongs to the statement on its line, and one on lines of its own to what follows.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_collections

from experiments.core import config_file

_WIDTH = 118
_COMMENTS_AT = 40  # the column


def lines(argument: str) -> list[str]:
    """The help on the config of PATH[:VARIANT], values as this variant has them.

    Raises:
      UsageError: there is no such file, or it makes no config.
    """
    config = config_file.load(argument)
    path = argument.partition(":")[0]
    module = config_file.module_of(path)
    comments = _Comments(Path(path).read_text())
    title = (module.__doc__ or "").partition("\n\n")[0]
    fields = f"Fields of {argument}, each set by --config.FIELD=VALUE:"
    return [
        *textwrap.wrap(title, _WIDTH),
        "",
        *_variants(path, vars(module), comments),
        fields,
        *_fields(config, comments),
    ]


def values(config: ml_collections.ConfigDict) -> list[str]:
    """Every field of a config with its value, a line each."""
    return [f"config.{name} = {value!r}" for name, value in _leaves(config).items()]


class _Comments:
    """The comments of a Python file, and where its fields are set."""

    def __init__(self, source: str):
        self._source = source
        self._by_line: dict[int, str] = {}
        self._alone: set[int] = set()  # lines with nothing but a comment
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                self._by_line[line] = token.string.lstrip("# ")
                if not token.line[:column].strip():
                    self._alone.add(line)

    def fields(self) -> Iterator[tuple[str, str, str]]:
        """Of each statement `config.x.y = ...`: x.y, the comment on lines of its own above it, and that beside it."""
        statements = [node for node in ast.walk(ast.parse(self._source)) if isinstance(node, ast.Assign)]
        for node in sorted(statements, key=lambda node: node.lineno):
            name = ast.unparse(node.targets[0])
            if name.startswith("config."):
                yield name.removeprefix("config."), self._above(node.lineno), self._beside(node)

    def entries(self, name: str) -> dict[str, str]:
        """The comments beside the keys of a dictionary that is written out, by key."""
        for node in ast.parse(self._source).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Dict)
                and ast.unparse(node.targets[0]) == name
            ):
                keys = [key for key in node.value.keys if isinstance(key, ast.Constant)]
                return {str(key.value): self._by_line.get(key.lineno, "") for key in keys}
        return {}

    def _above(self, line: int) -> str:
        first = line
        while first - 1 in self._alone:
            first -= 1
        return " ".join(self._by_line[above] for above in range(first, line))

    def _beside(self, node: ast.stmt) -> str:
        within = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        return " ".join(self._by_line[line] for line in within if line in self._by_line)


def _variants(path: str, module: Mapping[str, Any], comments: _Comments) -> list[str]:
    """Of a file with VARIANTS: their names. Of one with OPTIONS: each with its default, comment and CHOICES."""
    if "VARIANTS" in module:
        names = textwrap.wrap(", ".join(module["VARIANTS"]), _WIDTH - 2)
        return [f"Variants, one of them after a colon ({path}:VARIANT):", *(f"  {line}" for line in names), ""]
    if "OPTIONS" not in module:
        return []
    said, choices = comments.entries("OPTIONS"), module.get("CHOICES", {})
    found = [f"Variants, by options after a colon, commas between ({path}:OPTION=VALUE,OPTION=VALUE):"]
    for name, default in module["OPTIONS"].items():
        one_of = f"one of {', '.join(choices[name])}" if name in choices else ""
        found += row(f"{name}={default}", "; ".join(filter(None, [one_of, said.get(name, "")])))
    return [*found, ""]


def _fields(config: ml_collections.ConfigDict, comments: _Comments) -> list[str]:
    """In the order of the file; what only an update sets comes last."""
    left, found = _leaves(config), []
    stated = [name for name, *_ in comments.fields()]
    for name, above, beside in comments.fields():
        below = [leaf for leaf in left if leaf.startswith(f"{name}.") and leaf not in stated]
        if name not in left and not below and not any(leaf.startswith(f"{name}.") for leaf in left):
            continue  # of another variant, or said already
        if above:
            found += ["", *(f"  {line}" for line in textwrap.wrap(above, _WIDTH - 2))]
        if name in left:
            found += row(f"{name} = {left.pop(name)!r}", beside)
        elif beside:
            found += row(name, beside)
        for leaf in below:
            found += row(f"{leaf} = {left.pop(leaf)!r}", "")
    for leaf, value in left.items():
        found += row(f"{leaf} = {value!r}", "")
    return found


def row(first: str, comment: str) -> list[str]:
    """What there is, and beside it what is said of it, over several lines where that is long."""
    start = f"  {first}"
    if not comment:
        return [start]
    indent = " " * _COMMENTS_AT
    if len(start) < _COMMENTS_AT - 1:
        return textwrap.wrap(comment, _WIDTH, initial_indent=start.ljust(_COMMENTS_AT), subsequent_indent=indent)
    return [start, *textwrap.wrap(comment, _WIDTH, initial_indent=indent, subsequent_indent=indent)]


def _leaves(config: ml_collections.ConfigDict) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, ml_collections.ConfigDict):
            found |= {f"{name}.{below}": leaf for below, leaf in _leaves(value).items()}
        else:
            found[name] = value
    return found
