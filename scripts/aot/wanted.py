"""What results/accelerators/ is to hold: runs on slices, and chips to compile operators for."""

import dataclasses

OPERATORS = ("v5e", "v6e", "h200", "v5p", "tpu7x")


@dataclasses.dataclass(frozen=True)
class Run:
    """An experiment on slices.

    Attributes:
      name: of the records.
      experiment: the package.
      variant: of its config, after the colon.
      overrides: `FIELD=VALUE` of the config.
      types: slices.
    """

    name: str
    experiment: str
    variant: str
    overrides: tuple[str, ...]
    types: tuple[str, ...]


_SIXTEEN = ("v5litepod-16", "v6e-16")
_OTHERS = (*(f"{kind}-{count}" for count in (8, 64, 256) for kind in ("v5litepod", "v6e")), "h200-8")
_AND_GPUS = (*_SIXTEEN, "h200-8")
_EXPERT = ("mesh.expert=4",)
_EINSUM = (*_EXPERT, "moe.dispatcher=einsum")
# Those first that say most.
RUNS = (
    Run("vmoe S/32 relaxed", "vmoe", "router=relaxed", _EXPERT, _SIXTEEN),
    Run("vmoe S/32 hard", "vmoe", "router=hard", _EXPERT, _SIXTEEN),
    Run("vit B/16 top-3", "cifar100_vit", "loss=topk", (), _SIXTEEN),
    Run("vmoe S/32 relaxed", "vmoe", "router=relaxed", _EXPERT, _OTHERS),
    Run("vmoe S/32 hard", "vmoe", "router=hard", _EXPERT, _OTHERS),
    Run("vit B/16 top-3", "cifar100_vit", "loss=topk", (), _OTHERS),
    Run("vmoe S/32 token choice", "vmoe", "router=token_choice", _EXPERT, _AND_GPUS),
    Run("vmoe S/32 relaxed einsum", "vmoe", "router=relaxed", _EINSUM, _SIXTEEN),
    Run("vmoe S/32 hard einsum", "vmoe", "router=hard", _EINSUM, _SIXTEEN),
    Run("vit B/16 top-3 without remat", "cifar100_vit", "loss=topk", ("model.remat=False",), _AND_GPUS),
    Run("vit B/16 top-3 fsdp", "cifar100_vit", "loss=topk", ("mesh.fsdp=8",), _SIXTEEN),
    Run("vit B/16 cross-entropy", "cifar100_vit", "loss=xent", (), _AND_GPUS),
    Run("vmoe B/16 relaxed", "vmoe", "router=relaxed,size=B/16", _EXPERT, (*_SIXTEEN, *_OTHERS)),
    Run("vmoe B/16 hard", "vmoe", "router=hard,size=B/16", _EXPERT, (*_SIXTEEN, *_OTHERS)),
    Run("vmoe B/16 token choice", "vmoe", "router=token_choice,size=B/16", _EXPERT, _SIXTEEN),
)
