"""Settings fixed when an operator is compiled, as hypothesis draws them and as a line that reproduces a problem."""

import dataclasses
import json
import math

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests.ops.oracle.reals import EXTENDED

# Entries in groups whose sizes floating point has exactly, and those of matrices.
GROUPS = ("blocks", "channels", "runs")
_GROUPED, _PLANNED = (12, 24, 48, 96), (2, 4, 6, 9, 12, 16, 20, 24, 30, 48)
_SIZES = (4, 5, 6, 8, 10, 16, 3, 2, 1, 24, 32, 64, 100, 300, 1000)
PER_ROW = ("relaxed_topk_value", "topk_fenchel_young_loss")
PERMUTAHEDRON = ("soft_sort", "soft_rank", "project_permutahedron")
# Operators of which entries compete along one axis, and those that take a share of them in the place of ``k``.
_ONE_AXIS = ("soft_topk", "topk_fenchel_young_loss", "topk_plan", *PERMUTAHEDRON)
_WITHOUT_DENSITY = ("knapsack_mask", "topk_plan", "topk_fenchel_young_loss", "sparsemax", *PERMUTAHEDRON)


@dataclasses.dataclass(frozen=True)
class Setting:
    """An operator with everything that compiles anew.

    Attributes:
      operator: name in ``tests.ops.problems.operators.OPERATORS``.
      n: entries of a row.
      rows: how many rows at once.
      dtype: of the entries.
      p: exponent of the regularisation.
      phi: nonlinearity, of the operators that take one.
      debias: whether ``topk_mag`` and its tree rescale.
      solver: of the top-k operators.
      target: of the losses.
      layout: ``rows`` (the last axis), ``columns`` (the first), ``vmap`` over vectors, ``several`` (a tuple of two
        axes) or ``all`` (``axis=None`` of matrices, under ``vmap``).
      where: whether some entries are masked out.
      known: whether ``k`` and ``lam`` are numbers known to the compiler, the same for all rows.
      optimized: whether the code is compiled as users do, or quickly.
      density: whether ``k`` is given as a share of what competes.
      groups: of the operators of pytrees, by their name in ``GROUPS``; none if empty.
    """

    operator: str
    n: int
    rows: int = 64
    dtype: str = "float32"
    p: float = 2.0
    phi: str = "identity"
    debias: bool = False
    solver: str = "threshold"
    target: str = "one_hot"
    layout: str = "rows"
    where: bool = False
    known: bool = False
    optimized: bool = False
    density: bool = False
    groups: str = ""

    @property
    def matrix(self) -> tuple[int, int]:
        """The entries of a row as a matrix, as square as can be."""
        height = next(size for size in range(math.isqrt(self.n), 0, -1) if self.n % size == 0)
        return height, self.n // height

    @property
    def competing(self) -> int:
        """How many there are to select from."""
        if self.operator == "topk_plan":
            return self.matrix[1]
        return 4 if self.groups == "runs" else int(self.members.max()) + 1 if self.groups else self.n

    @property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the matrices that hold groups; ``n`` is a multiple of 12. Runs do not compete with each other."""
        return ((4, self.n // 4),) if self.groups == "runs" else ((4, self.n // 6), (4, self.n // 12))

    @property
    def members(self) -> np.ndarray:
        """The number of the group of each entry: tiles of 2 by 4, rows, or runs of 4 down a column, of each leaf."""
        places = []
        for leaf, (height, width) in enumerate(self.leaves):
            row, column = np.indices((height, width)).reshape(2, -1)
            place = {"blocks": (row // 2, column // 4), "channels": (row, 0 * row), "runs": (0 * row, column)}
            places.append(np.stack([np.full_like(row, leaf), *place[self.groups]]))
        return np.unique(np.concatenate(places, axis=1), axis=1, return_inverse=True)[1].ravel()

    @property
    def working(self) -> str:
        """The dtype computed in."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def unit(self) -> float:
        """From 1 to the next number of that dtype."""
        return float(jnp.finfo(self.working).eps)

    @property
    def tiny(self) -> float:
        """Its least normal number."""
        return float(jnp.finfo(self.working).tiny)


def write(setting: Setting, **drawn: int) -> str:
    """A line that ``read`` understands; ``drawn`` says which row of which random numbers."""
    fields = dataclasses.fields(Setting)
    chosen = {f.name: getattr(setting, f.name) for f in fields if getattr(setting, f.name) != f.default}
    return json.dumps(chosen | drawn)


def read(line: str) -> tuple[Setting, dict[str, int]]:
    """A setting, with ``seed``, ``batch`` and ``row``."""
    words = json.loads(line)
    drawn = {name: words.pop(name) for name in ("seed", "batch", "row")}
    return Setting(**words), drawn


_EXPONENTS = st.one_of(
    st.sampled_from([2.0, 4 / 3, 1.5]),
    st.sampled_from([2.0, 4 / 3, 1.01, 1.05, 1.1, 1.2, 1.25, 1.9, 1.99, 1.999, 4 / 3 + 1e-10]),
    st.floats(1.01, 1.3).map(lambda p: round(p, 4)),
    st.floats(1.01, 2.0).map(lambda p: round(p, 4)),
)


@st.composite
def settings(draw: st.DrawFn, operator: str, entries: int) -> Setting:
    """Settings of an operator, with about so many entries in all rows together."""

    def chance(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent

    n = draw(st.sampled_from(_SIZES))
    dtype = draw(st.sampled_from(["float32"] * 5 + ["float64"] * 3 + ["bfloat16", "float16"]))
    p, phi, solver, target = draw(_EXPONENTS), "identity", "threshold", "one_hot"
    layout = draw(st.sampled_from(["rows", "vmap", "columns", "several", "all"]))
    debias, where, known, optimized = chance(50), chance(30), chance(15), chance(20)
    density = operator not in _WITHOUT_DENSITY and chance(20)
    if operator.startswith("relaxed_topk"):
        phi = draw(st.sampled_from(["abs", "exp", "identity", "half_square"]))
    if operator in ("topk_mask", "topk_mag", "relaxed_topk"):
        solver = draw(st.sampled_from(["threshold"] * 6 + ["pav", "kernel"]))
        # A kernel is interpreted where there is no accelerator: a few entries take long enough.
        n = min(n, {"threshold": n, "pav": 12, "kernel": 32}[solver])
        dtype = "float32" if solver == "kernel" and dtype == "float64" else dtype
    if operator == "topk_fenchel_young_loss":
        target = draw(st.sampled_from(["one_hot", "smooth"]))
    if operator == "sparsemax" or operator.startswith("hard"):
        p = 2.0
    groups = ""
    if operator.endswith("_tree"):
        n, layout, where = max(n, 3), "rows", False
        groups = draw(st.sampled_from(["", *GROUPS]))
        n = draw(st.sampled_from(_GROUPED)) if groups else n
    if operator in _ONE_AXIS and layout in ("several", "all"):
        layout = "rows"
    if operator == "knapsack_mask":
        n = min(n, 64)
    if operator == "topk_plan":
        n, where = draw(st.sampled_from(_PLANNED)), False
    if operator in PERMUTAHEDRON:
        n, where = min(n, 8 if p == 2 else 5), False
    if operator not in ("topk_mask", "topk_mag", "relaxed_topk", "soft_topk", *PER_ROW):
        known = False
    if phi == "exp" and dtype == "float16":
        dtype = "float32"  # exp(50) is no float16
    if not EXTENDED:
        dtype = dtype.replace("64", "32")
    rows = int(np.clip(entries // n // 2 * 2, 16, 32 if operator == "topk_plan" else 256))
    return Setting(
        operator, n, rows, dtype, p, phi, debias and operator in ("topk_mag", "topk_mag_tree"),
        solver, target, layout, where, known, optimized, density, groups,
    )  # fmt: skip
