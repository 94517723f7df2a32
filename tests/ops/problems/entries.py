"""Rows of numbers of every kind that is known to be hard, or is likely."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from tests.ops.problems.setting import PER_ROW, PERMUTAHEDRON, Setting

# What the operators are documented to be right for, besides 0; ``exp`` overflows long before.
ENTRIES, STRENGTHS, EXPONENTS = (1e-30, 1e30), (1e-12, 1e12), 50.0
_OVERFLOW = 1e37

Random = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Rows:
    """Numbers for problems of one setting.

    Attributes:
      x: entries, shape ``(rows, n)``, of the dtype of the setting.
      k: shape ``(rows,)``, of the working dtype, as ``lam`` is.
      lam: strengths.
      where: entries that take part, of the shape of ``x``.
      extra: targets of a loss, weights of a permutahedron, costs, of the shape of ``x``; limits of the columns of a
        plan, in the first row of each matrix; zeros elsewhere.
      cotangent: weights of the outputs, whose weighted sum is differentiated.
      inside: rows in the range that is documented, where NaN is wrong, too; shape ``(rows,)``.
    """

    x: np.ndarray
    k: np.ndarray
    lam: np.ndarray
    where: np.ndarray
    extra: np.ndarray
    cotangent: np.ndarray
    inside: np.ndarray


def _clusters(rng: Random, shape: tuple[int, int]) -> np.ndarray:
    centres = rng.normal(size=(shape[0], 3))
    jitter = 10.0 ** rng.uniform(-9, -2, size=(shape[0], 1)) * rng.normal(size=shape)
    return np.take_along_axis(centres, rng.integers(0, 3, size=shape), axis=1) * (1 + jitter)


def _mixed(rng: Random, shape: tuple[int, int]) -> np.ndarray:
    return rng.choice([-1.0, 1.0], size=shape) * 10.0 ** rng.uniform(-30, 30, size=shape)


def _outlier(rng: Random, shape: tuple[int, int]) -> np.ndarray:
    x = rng.normal(size=shape)
    x[:, rng.integers(shape[1])] *= 10.0 ** rng.uniform(1, 9, size=shape[0])
    return x


def _grid(rng: Random, shape: tuple[int, int]) -> np.ndarray:
    return rng.permuted(np.broadcast_to(np.arange(float(shape[1])), shape), axis=1) - rng.integers(shape[1])


def _two(rng: Random, shape: tuple[int, int]) -> np.ndarray:
    one, other = rng.normal(size=(2, shape[0], 1))
    return np.where(rng.random(shape) < 0.5, one, other)


KINDS: tuple[Callable[[Random, tuple[int, int]], np.ndarray], ...] = (
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.random(shape),
    lambda rng, shape: rng.choice([-1.0, 1.0], size=shape) * np.exp(4 * rng.normal(size=shape)),  # heavy tails
    lambda rng, shape: rng.integers(-2, 3, size=shape).astype(float),  # ties
    lambda rng, shape: np.broadcast_to(rng.normal(size=(shape[0], 1)), shape),
    lambda rng, shape: rng.normal(size=shape) * (rng.random(shape) < 0.4),
    lambda rng, shape: np.zeros(shape),
    lambda rng, shape: 1e6 + rng.integers(0, 8, size=shape),  # far from 0
    lambda rng, shape: rng.choice([-1e3, 1e3]) + 1e-2 * rng.normal(size=shape),
    _mixed,
    _clusters,
    _outlier,
    _grid,
    _two,
)


def draw(setting: Setting, *seed: int) -> Rows:
    """The rows that follow from these numbers."""
    rng = np.random.default_rng(seed)
    shape, rows = (setting.rows, setting.n), setting.rows
    kinds = rng.integers(len(KINDS), size=rows)
    x = np.empty(shape)
    for kind, entries in enumerate(KINDS):
        x[kinds == kind] = entries(rng, shape)[kinds == kind]
    finest = jnp.finfo(setting.dtype)
    small, large = max(-30.0, np.log10(float(finest.tiny)) + 1), min(30.0, np.log10(float(finest.max)) - 3)
    scaled = (rng.random(rows) < 0.25) & (np.abs(x).max(axis=1) < 1e6) & (not setting.known)
    x = x * np.where(scaled, 10.0 ** rng.uniform(small, large, size=rows), 1.0)[:, None]
    least, most = max(ENTRIES[0], 10.0**small), min(ENTRIES[1], 0.9 * float(finest.max))
    x = np.where(x == 0, 0.0, np.sign(x) * np.clip(np.abs(x), 1.001 * least, most / 1.001))
    if setting.phi == "exp":
        largest = np.abs(x).max(axis=1, keepdims=True)
        x = np.where(largest > EXPONENTS, x / np.maximum(largest, 1) * EXPONENTS, x)
        x = np.where(np.abs(x) < ENTRIES[0], 0, x)
    # Beyond the range, but not below the normal numbers, which XLA may take for 0.
    far = (rng.random(rows) < 0.05) & (setting.dtype != "float16") & (setting.phi != "exp")
    tallest = np.abs(x).max(axis=1)
    x = np.where(
        (far & (tallest > 0))[:, None], x * (10.0 ** rng.uniform(30, 37, rows) / np.maximum(tallest, 1e-30))[:, None], x
    )

    where = np.ones(shape, bool)
    if setting.where:
        where = rng.random(shape) < rng.choice([0.0, 0.3, 0.7, 1.0], p=[0.05, 0.25, 0.5, 0.2], size=(rows, 1))
    lam, k = _strengths(setting, rng, x), _counts(setting, rng)
    # Where there is room for entries that are 0, and without relaxation, they have rules of their own.
    some = (x == 0).any(axis=1)
    k = np.where(some & (rng.random(rows) < 0.4), setting.competing, k)
    lam = np.where(some & (rng.random(rows) < 0.4), 0.0, lam)
    if setting.operator in ("topk_plan", "knapsack_mask"):
        x, lam = _of_matrices(setting, rng, x)
    if setting.known:  # one for all rows
        k, lam = np.full_like(k, k[0]), np.full_like(lam, rng.choice([0.0, 10.0 ** rng.uniform(-2, 1)], p=[0.3, 0.7]))
    extra = _extra(setting, rng, k)
    if setting.operator == "knapsack_mask":
        k = k / setting.n * (extra * (1 + (extra < 1))).sum(axis=1)
    x = _special(setting, rng, x, where, extra)
    if setting.groups:
        x = _with_exact_sizes(setting, rng, x)
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(jnp.dtype(setting.dtype))
        lam, k, extra = (value.astype(setting.working) for value in (lam, k, extra))
    per_row = setting.operator in PER_ROW
    cotangent = (rng.integers(-16, 17, size=(rows, 1 if per_row else setting.n)) / 8).astype(x.dtype)
    return Rows(x, k, lam, where, extra, cotangent, _inside(setting, x, k, lam, where, extra))


def _inside(
    setting: Setting, x: np.ndarray, k: np.ndarray, lam: np.ndarray, where: np.ndarray, extra: np.ndarray
) -> np.ndarray:
    size = np.where(where, np.abs(x.astype(np.float64)), 0.0)
    entries = (size <= (EXPONENTS if setting.phi == "exp" else ENTRIES[1])) | ~np.isfinite(size)
    if setting.operator in PERMUTAHEDRON:  # lam times the weights, which are the entries of soft_sort, is formed
        largest = np.maximum(size.max(axis=1), np.abs(extra).max(axis=1))
        entries = entries & (largest * lam.astype(np.float64) < _OVERFLOW)[:, None]
    if setting.operator == "topk_plan":  # near the end of the range of k it may not converge
        left = setting.competing - k
        entries = entries & ((left == 0) | (left > 4 * setting.unit**0.5 * np.maximum(k, 1)))[:, None]
    return entries.all(axis=1)


def _strengths(setting: Setting, rng: Random, x: np.ndarray) -> np.ndarray:
    """One per row: such that something is partly selected, mostly."""
    rows, order = setting.rows, setting.p - 1
    square = setting.operator.startswith("topk_mag") or setting.phi == "half_square"
    entries = np.abs(x) if square or setting.phi == "abs" else x
    with np.errstate(all="ignore"):
        largest, spread = np.abs(x).max(axis=1), np.median(np.abs(entries - entries[:, :1]), axis=1)
        unit = np.where(spread > 0, spread, np.where(largest > 0, largest, 1.0))
        if square:
            unit = unit / np.where(largest > 0, largest, 1.0) ** order
        elif setting.phi == "exp":
            unit = unit * np.exp(-order * (entries.max(axis=1) - 1))
        lam = unit * 10.0 ** rng.uniform(-4, 1.5, size=rows)
        gaps = np.abs(entries[:, 0] - entries[:, -1])
        drawn = rng.random(rows)
        lam = np.where(drawn < 0.25, 10.0 ** rng.uniform(-12, 12, size=rows), lam)
        lam = np.where((drawn > 0.25) & (drawn < 0.35), rng.choice([0.1, 0.5, 1.0, 2.0], size=rows), lam)
        lam = np.where((drawn > 0.35) & (drawn < 0.4) & (gaps > 0), gaps, lam)  # just where there is a kink
        lam = np.clip(np.nan_to_num(lam, nan=1.0), 1.001 * STRENGTHS[0], STRENGTHS[1] / 1.001)
    return np.where(rng.random(rows) < 0.05, 0.0, lam)


def _of_matrices(setting: Setting, rng: Random, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entries, and strengths at which rounding leaves the digits that a plan has to have."""
    x = x / np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-300)
    finest, small = (-4, 1e-3) if setting.working == "float64" else (-1.5, 0.1)
    size = 10.0 ** rng.uniform(np.log10(small), 3, size=setting.rows)
    return x * size[:, None], size * 10.0 ** rng.uniform(finest, 2, size=setting.rows)


def _with_exact_sizes(setting: Setting, rng: Random, x: np.ndarray) -> np.ndarray:
    """One number for each group, of a few bits, and entries whose mean, or root mean square, is just that.

    So what competes is known to the last bit, and what is judged is the selection.
    """
    groups = setting.members
    if setting.groups == "runs":
        return x
    first = np.unique(groups, return_index=True)[1]
    fraction, power = np.frexp(x[:, first])
    size = np.ldexp(np.rint(16 * fraction) / 16, power)
    limit = float(jnp.finfo(setting.dtype).max) / 16
    size = np.where(np.abs(size) > limit, size / 16, size)[:, groups]
    place = np.array([np.count_nonzero(groups[:i] == group) for i, group in enumerate(groups)])
    count = np.bincount(groups)[groups]
    if setting.operator.endswith("mask_tree"):
        around = np.where(place % 2 == 0, 2, 0) + np.where(place % 2 == 0, 1, -1) * rng.integers(-1, 2, (len(x), 1))
        return size * np.where(count % 2 == 0, around, 1)
    signs = rng.choice([-1.0, 1.0], size=x.shape)
    few = (count % 4 == 0) & (rng.random((len(x), 1)) < 0.4)
    return size * signs * np.where(few, np.where(place % 4 == 0, 2, 0), 1)


def _counts(setting: Setting, rng: Random) -> np.ndarray:
    rows, n = setting.rows, setting.competing
    whole = rng.integers(0, n + 1, size=rows).astype(float)
    whole = np.where(rng.random(rows) < 0.4, np.minimum(n, rng.integers(1, 6, size=rows)), whole)
    drawn = rng.random(rows)
    k = np.where(drawn < 0.3, rng.uniform(0, n, size=rows), whole)
    near = whole + rng.choice([-1.0, 1.0], rows) * 10.0 ** rng.uniform(-7, -1, rows)
    k = np.where((drawn > 0.3) & (drawn < 0.4), near, k)
    k = np.where((drawn > 0.4) & (drawn < 0.44), 0.0, k)
    k = np.where((drawn > 0.44) & (drawn < 0.48), float(n), k)
    if setting.density:  # clearly not whole, or just so
        k = whole + np.where(drawn < 0.5, 0, rng.uniform(0.05, 0.95, size=rows))
    elif setting.operator.startswith("hard"):
        k = whole
    if setting.operator == "sparsemax":
        k = np.ones(rows)
    if setting.operator == "topk_plan":  # much smaller ones take long
        k = np.maximum(k, 0.1)
    return np.clip(k, 0, n)


def _special(setting: Setting, rng: Random, x: np.ndarray, where: np.ndarray, extra: np.ndarray) -> np.ndarray:
    """Infinities and NaNs among the entries of a few rows, and rubbish in those that take no part."""
    if setting.groups:
        return x
    chance = rng.random((setting.rows, 1))
    spots = rng.random(x.shape) < 0.3
    masks = setting.operator.removesuffix("_tree") in ("topk_mask", "hard_topk_mask")
    selects = masks or setting.operator in ("sparsemax", "topk_fenchel_young_loss")
    if selects or (setting.operator.startswith("relaxed") and setting.phi == "identity"):
        x = np.where((chance < 0.05) & spots & (extra == 0), -np.inf, x)
    if masks:
        x = np.where((chance > 0.05) & (chance < 0.07) & spots, np.inf, x)
    if setting.operator not in (*PERMUTAHEDRON, "topk_plan", "knapsack_mask"):
        x = np.where((chance > 0.07) & (chance < 0.1) & spots, np.nan, x)
    rubbish = rng.choice([np.nan, np.inf, -np.inf, 1e30], size=x.shape)
    return np.where(~where & (chance > 0.5), rubbish, x)


def _extra(setting: Setting, rng: Random, k: np.ndarray) -> np.ndarray:
    shape = (setting.rows, setting.n)
    if setting.operator == "project_permutahedron":
        return np.where(rng.random((setting.rows, 1)) < 0.5, rng.normal(size=shape), rng.integers(-2, 3, size=shape))
    if setting.operator == "topk_plan":  # such that there is a plan: that of equal entries is within them
        height, width = setting.matrix
        above = rng.choice([1.0, 1.05, 1.5, 4.0], p=[0.3, 0.3, 0.3, 0.1], size=(setting.rows, width))
        above = np.where(rng.random((setting.rows, 1)) < 0.2, 1.0, above)  # all bind
        return np.pad((height * k / width)[:, None] * above, ((0, 0), (0, setting.n - width)))
    if setting.operator == "knapsack_mask":
        return np.exp(rng.normal(size=shape) * rng.choice([0.0, 0.3, 1.0, 3.0], size=(setting.rows, 1)))
    if setting.operator != "topk_fenchel_young_loss":
        return np.zeros(shape)
    one_hot = np.arange(setting.n) == rng.integers(setting.n, size=(setting.rows, 1))
    several = rng.random(shape) < 0.3
    kind = rng.random((setting.rows, 1))
    soft = np.where(kind < 0.8, several, rng.random(shape))
    return np.where(kind < 0.6, one_hot, soft).astype(float)
