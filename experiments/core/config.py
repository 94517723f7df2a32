"""Config checks that name the field, and comparison of a saved config with the one asked for."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import ml_collections

from experiments.core.errors import UsageError


def require(condition: bool, field: str, value: Any, allowed: str) -> None:
    """Raises `UsageError` naming `field`, its `value` and what is `allowed`."""
    if not condition:
        raise UsageError(f"config.{field}={value!r} is not allowed: it must be {allowed}")


def require_one_of(field: str, value: Any, allowed: Collection[str]) -> None:
    """Raises `UsageError` unless `value` is one of the names in `allowed`."""
    require(value in allowed, field, value, "one of " + ", ".join(allowed))


def to_json(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The config as it reads back from a JSON file (tuples become lists)."""
    return json.loads(json.dumps(config.to_dict(), allow_nan=False))


def _leaves(tree: Mapping[str, Any], prefix: str = "config") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value


def differences(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """One phrase per field in which two configs (in JSON form) differ."""
    old, new = dict(_leaves(saved)), dict(_leaves(asked))
    return [
        f"{field} (saved {json.dumps(old[field]) if field in old else 'nothing'}, "
        f"asked {json.dumps(new[field]) if field in new else 'nothing'})"
        for field in sorted(old.keys() | new.keys())
        if field not in old or field not in new or old[field] != new[field]
    ]


def parse_options(argument: str, defaults: Mapping[str, str]) -> dict[str, str]:
    """What follows the colon of a config's path, "loss=topk,p=4/3", as strings over `defaults`.

    An option whose default is "no" may go without a value: its name then stands for "yes".

    Raises:
      UsageError: an option is unknown or lacks its value.
    """
    options = dict(defaults)
    for part in filter(None, argument.split(",")):
        name, _, value = part.partition("=")
        if not value and defaults.get(name) == "no":
            value = "yes"
        if name not in defaults or not value:
            raise UsageError(f"{part!r} is not one of OPTION=VALUE, where OPTION is one of " + ", ".join(defaults))
        options[name] = value
    return options
