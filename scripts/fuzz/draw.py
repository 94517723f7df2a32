"""Which settings a run tries."""

import math

import numpy as np

from scripts.fuzz.entries import PERMUTAHEDRON
from scripts.fuzz.grouping import GROUPS
from scripts.fuzz.operators import OPERATORS
from scripts.fuzz.oracle.reals import EXTENDED
from scripts.fuzz.setting import LAYOUTS, Setting, generator

# Entries of a compiled call, and of all calls of a setting: the oracle's time is proportional to them.
_CALL, _ENTRIES = 16384, 40_000
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 16, 24, 32, 64, 100, 300, 1000)
_OFTEN = np.array([1, 2, 3, 3, 3, 4, 4, 4, 4, 3, 3, 2, 1, 0.5, 0.5])
# Entries in groups whose sizes floating point has exactly, and those of matrices.
_GROUPED, _PLANNED = (12, 24, 48, 96), (2, 4, 6, 9, 12, 16, 20, 24, 30, 48)
_EXACT = (2.0, 4 / 3, 1.5)
_OTHER = (1.01, 1.05, 1.1, 1.2, 1.25, 1.9, 1.99, 1.999, 4 / 3 + 1e-10)

# Operators of which entries compete along one axis, and those that take a share of them in the place of ``k``.
_ONE_AXIS = ("soft_topk", "topk_fenchel_young_loss")
_WITH_DENSITY = (
    "topk_mask", "topk_mag", "relaxed_topk", "soft_topk", "relaxed_topk_value", "topk_sum", "hard_topk_mask",
    "hard_topk_mag", "topk_mask_tree", "topk_mag_tree", "hard_topk_mask_tree", "hard_topk_mag_tree",
)  # fmt: skip


def exponent(rng: np.random.Generator) -> float:
    """``p``: those in use, round ones, and any."""
    chance = rng.random()
    if chance < 0.5:
        return float(rng.choice(_EXACT, p=[0.5, 0.3, 0.2]))
    if chance < 0.65:
        return float(rng.choice(_OTHER))
    return round(float(rng.uniform(1.01, 1.3 if chance < 0.83 else 2)), 4)


def operators(seed: int, only: str | None) -> list[str]:
    """A hundred names or so, each as often as it is tried; settings go through them in turn."""
    if only is not None:
        return [only]
    names = [name for name, operator in OPERATORS.items() for _ in range(operator.share)]
    # Spread evenly: a short run, too, has something of the most.
    position = {name: generator(seed, name).random() for name in OPERATORS}
    places = [(i + position[name]) / OPERATORS[name].share for name in OPERATORS for i in range(OPERATORS[name].share)]
    return [names[i] for i in np.argsort(places, kind="stable")]


def setting(operator: str, rng: np.random.Generator) -> Setting:
    """Everything else that compiles anew."""
    n = int(rng.choice(_SIZES, p=_OFTEN / _OFTEN.sum()))
    debias, where, known, optimized = rng.random(4) < (0.5, 0.3, 0.15, 0.3)
    dtypes = ["float32", "float64", "bfloat16", "float16"]
    dtype = str(rng.choice(dtypes, p=[0.55, 0.25, 0.1, 0.1]))
    layout = str(rng.choice(LAYOUTS, p=[0.4, 0.12, 0.12, 0.16, 0.12, 0.08]))
    p, phi, solver, target = exponent(rng), "identity", "threshold", "one_hot"
    if operator == "relaxed_topk":
        phi = str(rng.choice(["abs", "exp", "identity", "half_square"], p=[0.4, 0.4, 0.1, 0.1]))
    if operator in ("topk_mask", "topk_mag", "relaxed_topk"):
        chance = rng.random()
        if chance < 0.15:
            solver, n = "pav", min(n, 12)
        elif chance > 0.92 and dtype != "float64":
            solver, n = (
                "kernel",
                min(n, 64),
            )  # interpreted where there is no accelerator: a few entries take long enough
    if operator == "relaxed_topk_value":
        phi = str(rng.choice(["identity", "abs", "exp", "half_square"]))
    if operator == "topk_fenchel_young_loss":
        target = str(rng.choice(["one_hot", "smooth"]))
    if operator in ("sparsemax", "topk_sum") or operator.startswith("hard"):
        p, known = 2.0, False
    density = operator in _WITH_DENSITY and rng.random() < 0.2
    groups = ""
    if operator.endswith("_tree"):
        n, layout, where, known = max(n, 3), "rows", False, False
        if rng.random() < 0.6:
            n, groups = int(rng.choice(_GROUPED)), str(rng.choice(GROUPS))
    if layout in ("several", "all") and operator in _ONE_AXIS:
        layout = "rows"
    if operator == "knapsack_mask":
        n, known = min(n, 64), False
    if operator == "topk_plan":
        n, where, known = int(rng.choice(_PLANNED)), False, False
        layout = layout if layout in ("columns", "vmap") else "rows"
    if operator in PERMUTAHEDRON:
        n, where, known = min(n, 8 if p == 2 else 5), False, False
    if phi == "exp" and dtype == "float16":
        dtype = "float32"  # exp(50) is no float16
    most = 64 if operator == "topk_plan" else 256  # of which the oracle takes long
    # Those with a number known to the compiler come in one batch: each would be compiled anew.
    rows = int(np.clip(_CALL // n // 2 * 2, 16, 1024 if known else most))
    return Setting(
        operator, n, rows, dtype if EXTENDED else dtype.replace("64", "32"), p, phi,
        bool(debias) and operator in ("topk_mag", "topk_mag_tree"),
        solver, target, layout, bool(where), bool(known), bool(optimized), bool(density), groups,
    )  # fmt: skip


def plan(seed: int, count: int, only: str | None) -> list[tuple[Setting, int]]:
    """Settings, and how many batches of rows of each; in all at least ``count`` rows."""
    configs = int(np.clip(math.isqrt(count) // 2, 1, 160))
    names = operators(seed, only)
    settings = [setting(names[i % len(names)], generator(seed, i)) for i in range(configs)]
    planned, left = [], count
    for i, chosen in enumerate(settings):
        fair = math.ceil(left / (configs - i))
        affordable = 1 if chosen.known else max(1, _ENTRIES // (chosen.rows * chosen.n))
        batches = max(
            1, math.ceil(left / chosen.rows) if i == configs - 1 else min(math.ceil(fair / chosen.rows), affordable)
        )
        planned.append((chosen, batches))
        left = max(left - batches * chosen.rows, 0)
    return planned
