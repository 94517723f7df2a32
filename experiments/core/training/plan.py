"""How long a run is, how many steps it takes at once, and after which of them it stops to look.

config.epochs               the length in passes over the training data: an epoch at once, a row
                            of metrics after each, a checkpoint every `checkpoint_every` epochs

config.steps                or the length in steps:
      .steps_per_dispatch   taken by one compiled call (1)
      .eval_every           steps between two rows of metrics, each with an evaluation
      .checkpoint_every     steps between two checkpoints
      .accumulate           microbatches, one after the other, that the gradient is the mean of (1)
"""

import dataclasses

import ml_collections

from experiments.core.config import is_whole, require
from experiments.core.errors import UsageError

_ONE = ("steps_per_dispatch", "accumulate")  # fields that are 1 where they are left out


def by_steps(config: ml_collections.ConfigDict) -> bool:
    """Returns whether the length is given in steps."""
    return config.get("steps") is not None


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields read here, before the data are."""
    if by_steps(config) == (config.get("epochs") is not None):
        raise UsageError("the length of a run is either config.epochs or config.steps")
    fields = ("steps", "steps_per_dispatch", "eval_every") if by_steps(config) else ("epochs",)
    for field in (*fields, "checkpoint_every", "accumulate"):
        value = config.get(field, 1 if field in _ONE else None)
        require(is_whole(value) and value > 0, field, value, "positive")
    if by_steps(config):
        at_once = config.get("steps_per_dispatch", 1)
        for field in ("steps", "eval_every", "checkpoint_every"):
            require(config[field] % at_once == 0, field, config[field], f"a multiple of steps_per_dispatch={at_once}")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Lengths in steps; all but the first divide by `steps_per_dispatch`."""

    steps_per_epoch: int  # the incomplete last batch is dropped
    total_steps: int
    steps_per_dispatch: int
    eval_every: int
    checkpoint_every: int
    unit: str  # what people count this run in: "epoch" or "step"

    @staticmethod
    def of(config: ml_collections.ConfigDict, num_train: int) -> "Plan":
        """The plan of a valid `config` for `num_train` examples."""
        most = f"at most the {num_train} training images of {config.dataset}"
        require(config.batch_size <= num_train, "batch_size", config.batch_size, most)
        epoch = num_train // config.batch_size
        if not by_steps(config):
            largest = (2**31 - 1) // epoch
            allowed = f"at most {largest}: steps are counted in 31 bits"
            require(config.epochs <= largest, "epochs", config.epochs, allowed)
            return Plan(epoch, config.epochs * epoch, epoch, epoch, config.checkpoint_every * epoch, "epoch")
        at_once = config.get("steps_per_dispatch", 1)
        return Plan(epoch, config.steps, at_once, config.eval_every, config.checkpoint_every, "step")

    def is_row(self, step: int) -> bool:
        """Returns whether a row of metrics is due after `step` steps."""
        return step % self.eval_every == 0 or step == self.total_steps

    def is_checkpoint(self, step: int) -> bool:
        """Returns whether a checkpoint is due after `step` steps; one at the end comes by itself."""
        return step % self.checkpoint_every == 0

    def last_row(self, step: int) -> int:
        """The step of the last row due up to `step`."""
        return step if self.is_row(step) else step - step % self.eval_every

    def epochs(self, step: int) -> int | float:
        """The passes over the training data that `step` steps make."""
        whole, rest = divmod(step, self.steps_per_epoch)
        return round(step / self.steps_per_epoch, 4) if rest else whole

    def count(self, step: int) -> int:
        """`step` in units of the plan."""
        return step // self.steps_per_epoch if self.unit == "epoch" else step

    def describe(self, step: int) -> str:
        """`epoch 3` or `step 1404`."""
        return f"{self.unit} {self.count(step)}"
