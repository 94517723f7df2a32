"""What of a config makes a run what it is, and what the run is called by it."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments.core.config import COMPUTED_HOW
from experiments.core.errors import UsageError
from experiments.core.kinds import Fields, Kinds, is_of
from experiments.core.record.metrics import flatten
from experiments.core.report.results import UNREADABLE, Run, misfit, unknown

# How a run is carried out and what it keeps. What it learns does not depend on these; means since the last row, as the
# training loss, are over as many steps as `eval_every` says.
BOOKKEEPING = (
    *(
        "accelerator",
        "checkpoint_every",
        "data_dir",
        "download",
        "eval_batch_size",
        "eval_every",
        "export_examples",
        "export_probe",
        "export_pictures",
    ),
    *("export_params", "features.directory", "feed", "input.prefetch", "input.workers"),
    *("steps_per_dispatch", "tensorboard", *COMPUTED_HOW),
)

# Besides: what is tuned, even where no name tells it; what computes the same numbers in another way; and what is held
# out of training for validation, where runs are compared on test.
_NO_CIRCUMSTANCE = ("optimizer", "accumulate", "model.remat", "model.scan", "moe.dispatcher", "validation_size")


@dataclasses.dataclass(frozen=True)
class Identity:
    """How the configs of an experiment are read where runs are compared.

    Attributes:
      kinds: those of the experiment's registry, with the fields that each reads.
      earlier: fields that came later than the first runs, with the value by which those were made.
      known: the names that fields may have, for which there are labels.
      baseline: of a run, which of others its experiment holds it against: the baseline in all its circumstances; None
        for the baseline itself, or where there is none.
      types: what else tables and figures read of every config, and of what type it is.
      parts: what tables call a run: for example `["relaxed top-k", "p = 2", "lam = 0.1"]`.
      told: the fields that these parts tell, where their entry reads them.
    """

    kinds: Kinds
    known: Mapping[str, Collection[str]]
    parts: Callable[[Run], list[str]]
    told: Collection[str]
    baseline: Callable[[Run, Sequence[Run]], Run | None] = lambda run, others: None
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    earlier: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def fields(self, config: Fields) -> Fields:
        """The fields that a run of the config reads, those that it lacks with the value of the time."""
        config = {**self.earlier, **config}
        return {name: value for name, value in config.items() if self.kinds.is_read(name, config)}

    def circumstances(self, run: Run) -> Fields:
        """What is alike where a difference is one of methods: data, network, length of training and the like.

        Not what makes the method, what is tuned or how it is computed. None is left out, as runs made before there was
        such a field lack it.
        """
        apart = (*self.told, *self.kinds.of_kinds, *BOOKKEEPING, *_NO_CIRCUMSTANCE)
        fields = self.fields(dotted(run.config))
        return {name: value for name, value in fields.items() if value is not None and not is_of(name, apart)}

    def comparable(self, run: Run, others: Iterable[Run], but: Collection[str] = ()) -> list[Run]:
        """Those of the others whose circumstances are those of the run, `but` for these fields."""

        def found(one: Run) -> Fields:
            return {name: value for name, value in self.circumstances(one).items() if name not in but}

        return [other for other in others if found(other) == found(run)]

    def is_of_entries(self, field: str) -> bool:
        """Whether the field is one that not all entries read."""
        return is_of(field, self.kinds.of_kinds)

    def name(self, run: Run) -> list[str]:
        """The parts of its name; none where an entry is not known any more.

        Raises:
          UsageError: a field of its config is missing, or of another kind.
        """
        if reason := misfit(run.config, self.types):
            raise UsageError(reason)
        if unknown(run.config, self.known):
            return []
        try:
            return self.parts(run)
        except UNREADABLE as error:
            raise UsageError(
                f"a field of its config is missing, or of another kind: {type(error).__name__}: {error}"
            ) from error

    def odd(self, run: Run) -> str:
        """Why the experiment's tables and figures have to leave a run out; empty if they have not."""
        try:
            self.name(run)
        except UsageError as error:
            return str(error)
        return unknown(run.config, self.known)

    def tells(self, field: str) -> bool:
        """Whether names of runs say what the field is."""
        return is_of(field, self.told)


def dotted(config: Mapping[str, Any]) -> Fields:
    """The fields of a config as it was saved, in order, but its seeds."""
    flat = flatten({name: value for name, value in config.items() if name != "seeds"})
    return {name.replace("/", "."): value for name, value in sorted(flat)}


def is_bookkeeping(field: str) -> bool:
    """Whether no number of a run depends on the field."""
    return is_of(field, BOOKKEEPING)
