"""Kinds, such as routers or pruning methods: the fields of a config that each reads, and overrides that fit no kind."""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import ml_collections

from experiments.core.config import leaves, load, require
from experiments.core.errors import UsageError

Fields = dict[str, Any]  # of a config, by dotted name


@dataclasses.dataclass(frozen=True)
class Kinds:
    """The kinds that a field of an experiment's config names; fields by dotted name, `lam` for all of `lam.*`."""

    field: str  # that field, such as `router.name`
    reads: Mapping[str, Collection[str]]  # by kind, the fields that it reads, of those that not all kinds read
    # Fields that are read only where another field has one of some values: that field and the values.
    only_if: Mapping[str, tuple[str, Collection[Any]]] = dataclasses.field(default_factory=dict)
    # By kind, fields that it does not read, of those that all others read.
    ignores: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    # By field, the option after the colon of `--config` that sets it together with others; empty: the variant's name.
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def of_kinds(self) -> set[str]:
        """The fields that not all kinds read."""
        return {name for names in self.reads.values() for name in names}

    def is_read(self, name: str, config: Fields) -> bool:
        """Returns whether a run of the config reads the field, but for `ignores`; an unknown kind reads all fields."""
        kind = config.get(self.field, "")
        if is_of(name, self.of_kinds) and not is_of(name, self.reads.get(kind, self.of_kinds)):
            return False
        other, values = self.only_if.get(name, ("", ()))
        return not other or config.get(other) in values

    def check_overrides(
        self,
        argument: str,
        base: ml_collections.ConfigDict,
        config: ml_collections.ConfigDict,
        overridden: Iterable[str],
    ) -> None:
        """Checks the fields `overridden` in `config`, of the `base` that `--config=argument` makes.

        Raises `UsageError` where a field is not read, or a kind is chosen without the fields that its variant sets.
        """
        before, after, names = dotted(base), dotted(config), set(overridden)
        ignored = self.ignores.get(after.get(self.field, ""), ())  # the config of another experiment is refused later
        for name in sorted(names):
            if after[name] == before[name]:
                continue
            deciding = [self.field, *self.only_if.get(name, ())[:1]]
            unread = " and ".join(f"config.{field}={after.get(field)!r}" for field in deciding)
            read = self.is_read(name, after) and not is_of(name, ignored)
            require(read, name, after[name], f"left at {before[name]!r}: with {unread} nothing reads it")
            if name not in self.options:
                continue
            chosen, fields = self._variant(name, after[name], argument)
            combined = fields | {field: after[field] for field in names}
            lacks = [
                f"config.{field}={value!r}"
                for field, value in fields.items()
                if value != before.get(field) and field not in {*names, *ignored} and self.is_read(field, combined)
            ]
            require(not lacks, name, after[name], f"chosen by --config={chosen}, which sets {', '.join(lacks)}, too")

    def _variant(self, name: str, value: str, argument: str) -> tuple[str, Fields]:
        """Returns the `--config` whose variant gives a field the value, and its fields; none if no variant does."""
        path, _, variant = argument.partition(":")
        option = self.options[name]
        others = [part for part in variant.split(",") if part.partition("=")[0] != option and ("=" in part or option)]
        chosen = f"{path}:" + ",".join(filter(None, [f"{option}={value}" if option else value, *others]))
        try:
            return chosen, dotted(load(chosen))
        except UsageError:  # the name is not known, or the file has no such option: `validate` says what is allowed
            return chosen, {}


def dotted(config: ml_collections.ConfigDict) -> Fields:
    """The fields of a config by dotted name."""
    return dict(leaves(config.to_dict(), prefix=""))


def is_of(field: str, names: Collection[str]) -> bool:
    """Returns whether a field, by dotted name, is one of these names or belongs to a section that is."""
    return any(section in names for section in itertools.accumulate(field.split("."), "{}.{}".format))
