"""How many passes over the data the root of the scalar equation took: the one place that looks inside ``ops``."""

import jax.numpy as jnp
from jax import Array

from ops.scalar.equation import Equation
from ops.scalar.magnitude import in_units
from ops.scalar.threshold import evaluations


def passes(x: Array, k: Array, lam: Array, equation: Equation) -> Array:
    """The evaluations of each row, int32, shape ``(rows,)``.

    Args:
      x: entries, shape ``(rows, n)``, of the dtype computed in; absent ones are ``-inf``, or 0 if ``phi`` is even.
      k: shape ``(rows, 1)``.
      lam: likewise, positive.
      equation: of the operator.
    """
    (x,), lam, _ = in_units((x,), lam, equation)
    return jnp.reshape(evaluations((equation.keys(x, lam),), k, lam, equation), -1)
