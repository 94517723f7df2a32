"""The right answer for every contestant, by the oracle of the tests, which shares no code with ``ops``."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from tests.ops.oracle.equation import Curve
from tests.ops.oracle.problem import problem
from tests.ops.oracle.topk import solved, topk

Kind = Literal["mask", "magnitude", "hard mask", "largest", "sorted"]


@dataclasses.dataclass(frozen=True)
class Reference:
    """A function of ``x`` and ``k``: a relaxed or hard mask, top-k in magnitude, the k largest values, or a sort."""

    kind: Kind
    p: float = 2.0
    lam: float = 1.0
    debias: bool = False


class Expected(NamedTuple):
    """The truth about some rows; ``decided`` is False where a float32 may fall on the other side of a kink."""

    output: np.ndarray
    gradient: np.ndarray
    decided: np.ndarray


def expected(reference: Reference, x: np.ndarray, k: int, weights: np.ndarray) -> Expected:
    """Output of the reference, and gradient of its sum weighted by ``weights``, on rows ``x`` of shape (rows, n)."""
    if reference.kind in ("largest", "sorted"):
        descending = reference.kind == "largest"
        order = np.argsort(-x if descending else x, axis=1, kind="stable")[:, : k if descending else None]
        gradient = np.zeros(x.shape)
        np.put_along_axis(gradient, order, weights[:, : order.shape[1]], axis=1)
        return Expected(np.take_along_axis(x, order, axis=1).astype(np.float64), gradient, np.ones(x.shape, bool))
    hard = reference.kind == "hard mask"
    of = problem(x, k, 0.0 if hard else reference.lam, reference.p, cotangent=weights)
    curve = Curve("half_square" if reference.kind == "magnitude" else "identity")
    answer = topk(of, curve, reference.debias)
    position = solved(of, curve).root.t
    output, gradient = (answer.wanted[name].astype(np.float64) for name in ("value", "x"))
    decided = np.full(x.shape, hard) | (np.minimum(np.abs(position), np.abs(position - 1)) > 1e-5)
    return Expected(output, 0 * output if hard else gradient, decided)
