"""Projections onto the permutahedron, from the formula for isotonic regression that needs no pooling.

With ``s`` and ``w`` in descending order, ``y_i = rho(s_i - v_i)``, ``rho(t) = sign(t) (|t| / lam) ** e``, where ``v``
is the descending sequence that solves the isotonic problem (Proposition 5). Its entries are (Robertson, Wright and
Dykstra, 1988) ``v_i = min over a <= i of max over b >= i of V(a, b)``, with ``V(a, b)`` the one value that entries
``a`` to ``b`` would have together, ``sum rho(s_j - V) = sum w_j``. All of these are computed, for short rows.
"""

import numpy as np

from tests.ops.oracle.problem import Answer, Problem, sizes_of, total
from tests.ops.oracle.reals import EPS, Reals, power

_HALVINGS = 100


def project(of: Problem, x: Reals, w: Reals, of_weights: bool = False) -> Answer:
    """The projection of ``x`` onto the permutahedron of ``w``, and its derivatives in ``x`` or in ``w``, and ``lam``.

    ``k`` is what the sum of each block is off by: 0.
    """
    with np.errstate(all="ignore"):
        return _project(of, x, w, of_weights)


def _rho(t: Reals, of: Problem) -> Reals:
    return np.sign(t) * power(np.abs(t) / of.lam, of.exponent)


def _together(s: Reals, w: Reals, of: Problem) -> Reals:
    """``V - s_1`` of rows that form one block, shape ``(rows, 1)``."""
    count, sums = s.shape[1], total(w) + of.k
    offsets = s - s[:, :1]
    if of.order == 1:
        return (total(offsets) - of.lam * sums) / count
    reach = of.lam * power(np.abs(sums) / count, of.order)
    low, high = offsets[:, -1:] - reach, reach
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        below = total(_rho(offsets - middle, of)) > sums
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low + (high - low) / 2


def _blocks(s: Reals, w: Reals, of: Problem) -> tuple[np.ndarray, np.ndarray, Reals]:
    """First and last of the block of each entry, and ``s - v``.

    Values are held as a distance from the first entry of their block, so that they can be told apart however far from
    0 the entries are. Those that bisection does not tell apart count as equal, and blocks with one value as one block:
    with ``p`` near 1 an entry may be pooled with another by 1e-20 of it.
    """
    rows, n = s.shape
    widest = of.lam[:, 0] * power(np.abs(w).max(axis=1), of.order)
    nearby = np.zeros((n, n, rows), s.dtype)
    for a in range(n):
        for b in range(a, n):
            nearby[a, b] = _together(s[:, a : b + 1], w[:, a : b + 1], of)[:, 0]
    first, last = np.zeros((2, rows, n), np.int64)
    gap = np.zeros((rows, n), s.dtype)
    everyone = np.arange(rows)

    def last_of_largest(values: Reals) -> np.ndarray:
        largest = values.max(axis=0)
        equal = largest - values <= 16 * EPS * (np.abs(values) + np.abs(largest) + widest)
        return len(values) - 1 - np.argmax(equal[::-1], axis=0)

    for i in range(n):
        end = i + last_of_largest(nearby[i, i:])
        start, best = np.full(rows, i), nearby[i, end, everyone]
        for a in reversed(range(i)):
            other = i + last_of_largest(nearby[a, i:])
            value, apart = nearby[a, other, everyone], s[:, a] - s[everyone, start]
            lower = apart + (value - best) <= 16 * EPS * (np.abs(value) + np.abs(best) + widest)
            start, end, best = np.where(lower, a, start), np.where(lower, other, end), np.where(lower, value, best)
        first[:, i], last[:, i] = start, end
        gap[:, i] = (s[:, i] - s[everyone, start]) - best
    return first, last, gap


def _project(of: Problem, x: Reals, w: Reals, of_weights: bool) -> Answer:
    order, order_of_w = (np.argsort(-values, axis=1, kind="stable") for values in (x, w))
    s, w = np.take_along_axis(x, order, 1), np.take_along_axis(w, order_of_w, 1)
    h, n, e = np.take_along_axis(of.cotangent, order, 1), x.shape[1], of.exponent
    first, last, gap = _blocks(s, w, of)
    alone = first == last

    def block(values: Reals) -> Reals:  # sums, at each entry of a block
        running = np.concatenate([np.zeros_like(values[:, :1]), np.cumsum(values, axis=1)], axis=1)
        return np.take_along_axis(running, last + 1, 1) - np.take_along_axis(running, first, 1)

    def in_place(values: Reals, places: np.ndarray = order) -> Reals:
        result = np.zeros_like(values)
        np.put_along_axis(result, places, values, 1)
        return result

    vanishing = of.lam == 0
    y = np.where(alone | vanishing, w, _rho(gap, of))
    steep = 1 / of.lam + 0 * y if of.order == 1 else e * np.abs(y) / np.where(gap != 0, np.abs(gap), 1)
    steep_anyway, steep = steep, np.where(alone, 0, steep)
    pull = block(steep)
    held = np.where(pull > 0, pull, 1)
    share = np.where(alone, 0, block(steep * h) / held)
    paid = np.where(alone, 0, e * y / of.lam)
    # Equal entries may form a block or not.
    equal = np.diff(w if of_weights else s, axis=1) == 0
    judged = np.where(vanishing | equal.any(axis=1, keepdims=True), np.nan, 1)
    soft = np.where(vanishing, np.nan, 1)
    # Where the slope vanishes, or grows without bound, at 0 it is as uncertain as its argument.
    certain = alone | (of.order == 1) | (np.abs(gap) > 1e3 * of.unit * np.abs(s - s[:, :1]))
    judged = np.where(certain.all(axis=1, keepdims=True), judged, np.nan)

    adding = of.unit * (8 + 0.5 * n)
    # Weights that cancel leave a rounding of a sum, and derivatives are as uncertain as what the block has then.
    left_over = ~alone & (of.order != 1) & (block(np.abs(y)) <= 8 * adding * np.abs(w).max(axis=1, keepdims=True))
    judged = np.where(left_over.any(axis=1, keepdims=True), np.nan, judged)
    own = of.unit * (8 + 8 * e + np.abs(np.log2(np.where(y != 0, np.abs(y), 1))))
    rough = np.abs(h) + np.abs(share)
    largest, of_w = np.abs(h).max(axis=1, keepdims=True), np.abs(w).max(axis=1, keepdims=True)
    wanted = {
        "value": in_place(y),
        "x": judged
        * (in_place(np.where(alone, h, share), order_of_w) if of_weights else in_place(steep * (h - share))),
        "lam": soft * judged * -total(paid * (h - share)),
    }
    slack = {
        # Sums over a block are differences of sums over the row.
        "value": np.where(in_place(alone) | vanishing, 0, in_place(own * np.abs(y)) + adding * of_w),
        "x": 2 * adding * largest if of_weights else in_place((own + adding) * steep_anyway * rough),
        "lam": total((own + adding) * np.abs(paid) * rough)
        + adding * of_w / np.where(vanishing, 1, of.lam) * largest * e,
    }
    slack["x"] = np.broadcast_to(slack["x"], x.shape)
    reach = np.abs(w) if of_weights else np.abs(gap)
    reach = np.where(vanishing, 0, in_place(reach, order_of_w if of_weights else order))
    # A gap of 0 is one of a few roundings.
    gaps = np.abs(gap) + 64 * of.unit * (np.abs(gap) + of.lam * power(of_w, of.order))
    steepest = power(gaps / of.lam, e - 1)
    scale = sizes_of(wanted) | {
        "x": largest if of_weights else np.where(alone, 0, e / of.lam * steepest).max(axis=1, keepdims=True) * largest,
        "lam": total(np.abs(paid) * rough),
    }
    return Answer(wanted, slack, reach, scale, np.where(vanishing, 0, (8 + n / 2) * of_w))
