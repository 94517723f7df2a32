"""The table and the figures of the fine-tuning experiment."""

from experiments.cifar100_vit.losses import KINDS, LOSSES
from experiments.core.kinds import Fields
from experiments.core.report.presentation import Presentation


def _loss(fields: Fields) -> Fields:
    """The section of the config that has the loss."""
    return {name.removeprefix("loss."): value for name, value in fields.items() if name.startswith("loss.")}


PRESENTATION = Presentation(
    experiment="cifar100_vit",
    title="the fine-tuning experiment",
    kinds=KINDS,
    method=lambda fields: LOSSES[fields["loss.name"]].label(_loss(fields)),
    look=lambda fields: LOSSES[fields["loss.name"]].look(_loss(fields)),
    baseline="xent",
    setting=("loss", "optimizer"),
    always=("optimizer.learning_rate",),
    names={"optimizer.learning_rate": "learning rate", "optimizer.weight_decay": "decay"},
)
