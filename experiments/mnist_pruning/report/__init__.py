"""The table and the figures of the pruning experiment."""

from experiments.core.kinds import Fields
from experiments.core.report.presentation import Presentation
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from experiments.mnist_pruning.methods import KINDS

_METHODS: dict[str, tuple[str, Look]] = {
    "dense": ("dense", (GREY, "-")),
    "hard": ("hard top-k", (BLUE, "-")),
    "relaxed": ("relaxed top-k", (RED, "-")),
    "straight_through": ("hard, relaxed gradient", (SKY, "--")),
    "ot_straight_through": ("hard, optimal-transport gradient", (BLACK, "-")),
    "mask_straight_through": ("hard, gradient of another mask", (PURPLE, "-.")),
    "hard_concrete": ("hard-concrete L0 gates", (SKY, ":")),
    "ista": ("iterative soft-thresholding", (BLACK, ":")),
    "identity_straight_through": ("hard, gradient to all", (GREY, "-.")),
    "gradual": ("gradual magnitude pruning", (GREEN, "-")),
    "movement": ("movement pruning", (ORANGE, "-")),
    "rigl": ("RigL", (PURPLE, "-")),
    "topkast": ("Top-KAST", (ORANGE, ":")),
    "str": ("soft threshold reparameterisation", (PURPLE, ":")),
}


def _look(fields: Fields) -> Look:
    colour, dashes = _METHODS[fields["method"]][1]
    if fields["method"] == "relaxed":
        return (RED if fields["p"] == 2 else GREEN), "-" if fields["lam.schedule"] == "constant" else "--"
    return colour, dashes


PRESENTATION = Presentation(
    experiment="mnist_pruning",
    title="the pruning experiment",
    kinds=KINDS,
    method=lambda fields: _METHODS[fields["method"]][0],
    look=_look,
    baseline="hard",
    setting=("optimizer", "density_schedule"),
    always=("p",),
    names={"optimizer.learning_rate": "learning rate", "optimizer.schedule": "schedule", "lam.start": "lam"},
)
