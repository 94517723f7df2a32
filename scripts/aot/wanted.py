"""What results/accelerators/ is to hold: runs on slices, and chips to compile operators for."""

import dataclasses

CHIPS = ("v5e", "v6e", "h200", "v5p", "tpu7x")


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


@dataclasses.dataclass(frozen=True)
class Operators:
    """Programs of operators for some chips.

    Attributes:
      types: the chips.
      names: of the operators; none: all.
      dtype: of the entries.
      mode: value, or value and gradient.
      lengths: of the rows; none: all.
      divided: over eight of the chips, not on one.
    """

    types: tuple[str, ...]
    names: tuple[str, ...] = ()
    dtype: str = "float32"
    mode: str = "value and gradient"
    lengths: tuple[int, ...] = ()
    divided: bool = False

    @property
    def options(self) -> list[str]:
        """Of `python -m scripts.aot operators`."""
        some = {"n": ",".join(map(str, self.lengths)), "only": ",".join(self.names)}
        fixed = [f"--dtype={self.dtype}", f"--mode={self.mode}", f"--divided={'yes' if self.divided else 'no'}"]
        return [*fixed, *(f"--{name}={values}" for name, values in some.items() if values)]


_MOST_WANTED = CHIPS[:3]
# What is selected alone, to count what it moves, beside what a hard top-k does.
_MASKS = ("topk_mask", "topk_mag", "hard_topk_mask", "lax.top_k")
# A value is a part of its gradient, a program in bfloat16 hardly another than in float32, and one long row and a batch
# of short ones show what is divided: `--everything` compiles all of them, which takes days of a processor.
OPERATORS = (
    Operators(_MOST_WANTED, names=_MASKS, mode="value"),
    Operators(_MOST_WANTED),
    Operators(_MOST_WANTED, dtype="bfloat16", lengths=(1000, 1_000_000)),
    Operators(_MOST_WANTED, divided=True, lengths=(8192, 1_000_000)),
    Operators(CHIPS[3:], lengths=(1000, 1_000_000)),
)

_SIXTEEN = ("v5litepod-16", "v6e-16")
_OTHERS = (*(f"{kind}-{count}" for count in (8, 64, 256) for kind in ("v5litepod", "v6e")), "h200-8")
_AND_GPUS = (*_SIXTEEN, "h200-8")
_TWO_SLICES = ("2xv5litepod-8",)
_EXPERT = ("mesh.expert=4",)
_IN_PARTS = (*_EXPERT, "accumulate=2")
_EINSUM = (*_EXPERT, "moe.dispatcher=einsum")
# Those first that say most.
RUNS = (
    Run("vmoe S/32 relaxed", "vmoe", "router=relaxed", _EXPERT, _SIXTEEN),
    Run("vmoe S/32 hard", "vmoe", "router=hard", _EXPERT, _SIXTEEN),
    Run("vit B/16 top-3", "cifar100_vit", "loss=topk", (), _SIXTEEN),
    Run("vmoe S/32 relaxed", "vmoe", "router=relaxed", _EXPERT, _OTHERS),
    Run("vmoe S/32 hard", "vmoe", "router=hard", _EXPERT, _OTHERS),
    Run("vit B/16 top-3", "cifar100_vit", "loss=topk", (), _OTHERS),
    Run("vmoe S/32 relaxed", "vmoe", "router=relaxed", _EXPERT, _TWO_SLICES),
    Run("vmoe S/32 hard", "vmoe", "router=hard", _EXPERT, _TWO_SLICES),
    Run("vmoe S/32 token choice", "vmoe", "router=token_choice", _EXPERT, _AND_GPUS),
    Run("vmoe S/32 relaxed einsum", "vmoe", "router=relaxed", _EINSUM, _SIXTEEN),
    Run("vmoe S/32 hard einsum", "vmoe", "router=hard", _EINSUM, _SIXTEEN),
    Run("vit B/16 top-3 without remat", "cifar100_vit", "loss=topk", ("model.remat=False",), _AND_GPUS),
    Run("vit B/16 top-3 fsdp", "cifar100_vit", "loss=topk", ("mesh.fsdp=8",), _SIXTEEN),
    Run("vit B/16 cross-entropy", "cifar100_vit", "loss=xent", (), _AND_GPUS),
    Run("vmoe B/16 relaxed", "vmoe", "router=relaxed,size=B/16", _EXPERT, (*_SIXTEEN, *_OTHERS)),
    Run("vmoe B/16 hard", "vmoe", "router=hard,size=B/16", _EXPERT, (*_SIXTEEN, *_OTHERS)),
    # As it is, it does not fit there.
    Run("vmoe B/16 relaxed in two parts", "vmoe", "router=relaxed,size=B/16", _IN_PARTS, ("v5litepod-8",)),
    Run("vmoe B/16 token choice", "vmoe", "router=token_choice,size=B/16", _EXPERT, _SIXTEEN),
)
