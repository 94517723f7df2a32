"""What is measured, and how long it may take."""

import dataclasses
from typing import NamedTuple


class Case(NamedTuple):
    """Top ``k`` of each row of a ``(batch, n)`` array."""

    batch: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"({self.batch}, {self.n}, {self.k})"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes and time budgets of one run.

    Attributes:
      cases: what every contestant is timed on.
      lams: strengths of the relaxation our mask is timed with; 1 is what the targets are about.
      seconds: time for the timed calls of one case, shared by all contestants.
      fewest: calls of each contestant at least, however slow it is.
      most: calls of each contestant at most, however fast it is.
      scaling: sizes ``n`` to which the growth of time is fitted; ``k = n / 10``.
      scaling_seconds: time for those calls.
      memory: size ``n`` at which memory is measured.
      memory_of: names of the contestants, of ours, whose memory is measured.
      programs_of: names of those whose equations are counted, and compilation timed (``scripts.bench.programs``).
      seed: of the inputs.
    """

    cases: tuple[Case, ...]
    lams: tuple[float, ...]
    seconds: float
    fewest: int
    most: int
    scaling: tuple[int, ...]
    scaling_seconds: float
    memory: int
    memory_of: tuple[str, ...]
    programs_of: tuple[str, ...]
    seed: int = 0


FULL = Sizes(
    cases=(
        Case(12800, 400, 28),
        Case(1, 1000, 100),
        Case(8, 1000, 100),
        Case(128, 1000, 100),
        Case(1, 25_088, 2508),
        Case(1, 10**6, 10**5),
        Case(1, 10**7, 10**6),
    ),
    lams=(1.0, 0.1, 1e-4),
    seconds=15.0,
    fewest=3,
    most=400,
    scaling=(10**4, 10**5, 10**6, 10**7),
    scaling_seconds=8.0,
    memory=10**7,
    memory_of=("topk_mask p=2", "topk_mask p=4/3", "topk_mag p=2", "topk_mag p=4/3"),
    programs_of=("topk_mask p=2", "topk_mask p=4/3", "topk_mag p=2", "topk_mag p=4/3", "lax.top_k"),
)

QUICK = Sizes(
    cases=(Case(128, 1000, 100),),
    lams=(1.0,),
    seconds=3.0,
    fewest=3,
    most=100,
    scaling=(10**4, 10**5, 10**6),
    scaling_seconds=1.0,
    memory=10**6,
    memory_of=("topk_mask p=2",),
    programs_of=("topk_mask p=2",),
)
