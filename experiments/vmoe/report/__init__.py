"""The table and the figures of the V-MoE experiment."""

from experiments.core.report.presentation import Presentation
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from experiments.vmoe.router_kinds import KINDS, ROUTERS

_LOOKS: dict[str, Look] = dict(
    zip(ROUTERS, [(colour, "-") for colour in (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, GREY, BLACK)], strict=False)
)

PRESENTATION = Presentation(
    experiment="vmoe",
    title="the V-MoE experiment",
    kinds=KINDS,
    method=lambda fields: f"{fields['router.name']} router".replace("_", " "),
    look=lambda fields: _LOOKS.get(fields["router.name"], (BLACK, "-")),
    baseline="hard",
    setting=("router", "optimizer"),
    names={"optimizer.learning_rate": "learning rate", "router.lam.start": "lam"},
)
