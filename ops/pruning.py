"""Pruning one's own network while it trains: the weights of the forward pass are a relaxed top-k of those that learn.

    pruner = Pruner(density=0.05, lam=schedule)   # which weights, how many, how firmly at which step
    weights = pruner(params, step)                # in the loss, in the place of params
    sparse = pruner.harden(params)                # at the end: exact zeros

Everything works on pytrees of arrays: parameters of flax's linen, states of its nnx, plain dictionaries. The optimiser
goes on to hold dense parameters; derivatives reach them through the operator (Section 6 of Sander et al., 2023).
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .gradients import straight_through
from .groups import Groups, check_groups
from .interface.arguments import NON_NEGATIVE, SHARE, STRENGTH, check_choice, check_p, check_scalar, check_values, shown
from .leaves import Include
from .trees import hard_topk_mag_tree, topk_mag_tree

Schedule = Callable[[Any], ArrayLike]  # of the step, as those of optax

__all__ = ["Pruner", "matching", "matrices", "share_of_nonzeros"]


def __dir__() -> list[str]:
    """What users may use; the rest is how it is done."""
    return list(__all__)


def matrices(path: Any, leaf: Array) -> bool:
    """Whether a leaf has two axes or more: kernels, and not biases and scales.

    Args:
      path: its key path, of ``jax.tree_util``.
      leaf: floating array.

    >>> matrices((), jnp.zeros((3, 2))), matrices((), jnp.zeros(2))
    (True, False)
    """
    return jnp.ndim(leaf) >= 2


def matching(pattern: str) -> Include:
    """The leaves in whose path a regular expression is found; a path is written ``encoder/Dense_0/kernel``.

    Args:
      pattern: as in ``re.search``.

    Returns:
      A predicate of key path and leaf, for ``include`` and ``exclude``.

    >>> jax.tree_util.tree_map_with_path(matching("kernel$"), {"head": {"kernel": 1.0, "bias": 2.0}})
    {'head': {'bias': False, 'kernel': True}}
    """
    found = re.compile(pattern).search

    def matches(path: Any, leaf: Array) -> bool:
        return found(jax.tree_util.keystr(path, simple=True, separator="/")) is not None

    return matches


def share_of_nonzeros(params: Any, include: Include | None = None) -> Array:
    """Which share of the entries of a pytree is not 0, a scalar of JAX's default float type.

    Args:
      params: pytree of arrays.
      include: which of its floating leaves are counted; ``None`` for ``matrices``.

    Raises:
      ValueError: no leaf is counted.

    >>> share_of_nonzeros({"kernel": jnp.array([[1.0, 0.0], [0.0, 0.0]]), "bias": jnp.ones(2)})
    Array(0.25, dtype=float32)
    """
    leaves = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if _takes_part(path, leaf, include or matrices)
    ]
    if not leaves:
        raise ValueError("params must have at least one floating leaf that is counted, got none")
    nonzero = jnp.stack([jnp.count_nonzero(leaf).astype(float) for leaf in leaves])
    return jnp.sum(nonzero) / sum(jnp.size(leaf) for leaf in leaves)


def _takes_part(path: Any, leaf: Any, include: Include) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating) and include(path, leaf)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pruner:
    """Which weights are pruned, how many of them, and how firmly at which step.

    What may change while one trains (``density`` or ``k``, and ``lam``) is a number, or a schedule: a function of the
    step, as those of optax. Another number compiles nothing anew.

    ``lam`` decides whether it learns. Far below the differences between weights the operator is hard, and has no
    gradient for what it leaves out; large, nearly everything takes part. So let it fall over many orders of magnitude:
    with ``debias`` (under which a large ``lam`` leaves the network as it is) from about 10 to 1e-3, geometrically, as
    ``optax.exponential_decay(10.0, steps, 1e-4)``.

    Attributes:
      density: share of the weights that is kept, in [0, 1]. Exactly one of ``density`` and ``k`` is given.
      k: how many are kept.
      lam: strength of the relaxation, as in ``topk_mag_tree``.
      p: exponent of the regularisation, in (1, 2].
      debias: whether weights that are kept in full keep their value, or are shrunk.
      straight_through: whether the forward pass has the hard top-k, and the relaxed one only its derivatives.
      per_leaf: whether each matrix has a budget of its own, instead of one for the whole network.
      groups: what is kept or pruned together, as in ``topk_mag_tree``: ``Blocks``, ``Channels``, ``NM``, or nothing.
      include: which floating leaves are pruned, a predicate of key path and leaf, as ``matching`` makes of a pattern;
        ``None`` for ``matrices``.
      exclude: which of these are not, after all.

    Raises:
      ValueError: an argument is out of range, as far as it is known.

    >>> pruner = Pruner(density=0.25, lam=lambda step: 10.0 * 0.5**step)
    >>> params = {"kernel": jnp.array([[1.0, -3.0], [2.0, 0.5]]), "bias": jnp.ones(2)}
    >>> [int(jnp.count_nonzero(pruner(params, step)["kernel"])) for step in (0, 4, 10)]
    [4, 2, 1]
    >>> pruner.harden(params)["kernel"]
    Array([[ 0., -3.],
           [ 0.,  0.]], dtype=float32)
    """

    lam: ArrayLike | Schedule
    density: ArrayLike | Schedule | None = None
    k: ArrayLike | Schedule | None = None
    p: float = 2.0
    debias: bool = True
    straight_through: bool = False
    per_leaf: bool = False
    groups: Groups | None = None
    include: Include | None = None
    exclude: Include | None = None

    def __post_init__(self) -> None:
        check_p(self.p)
        if not callable(self.lam):
            check_values("lam", self.lam, STRENGTH)
        if (self.density is None) == (self.k is None):
            given = f"density={shown(self.density)}, k={shown(self.k)}"
            raise ValueError(f"exactly one of density and k must be given, got {given}")
        if self.density is not None and not callable(self.density):
            check_scalar("density", self.density, SHARE)
        if self.k is not None and not callable(self.k):
            check_scalar("k", self.k, NON_NEGATIVE)
        check_groups(self.groups)
        for name in ("include", "exclude"):
            predicate = getattr(self, name)
            if not (predicate is None or callable(predicate)):
                raise ValueError(f"{name} must be a function of key path and leaf, got {shown(predicate)}")

    def __call__(self, params: Any, step: ArrayLike = 0) -> Any:
        """The weights of the forward pass: those pruned relaxed, with exact zeros, the others as they are.

        Args:
          params: pytree of arrays.
          step: of the schedules, a number or a scalar that may be traced.

        Returns:
          A pytree like ``params``.

        Raises:
          ValueError: as ``topk_mag_tree``; no leaf is pruned, say.
        """
        lam = self.lam(step) if callable(self.lam) else self.lam
        options = self._options(step)
        relaxed = topk_mag_tree(params, lam=lam, p=self.p, debias=self.debias, **options)
        if not self.straight_through:
            return relaxed
        return jax.tree.map(_through, hard_topk_mag_tree(params, **_whole(options)), relaxed, params)

    def harden(self, params: Any, step: ArrayLike | None = None, *, format: Literal["dense", "bcoo"] = "dense") -> Any:
        """The weights for good: those of largest magnitude as they are, and exact zeros; what ``lam -> 0`` gives.

        Args:
          params: pytree of arrays: those that learned, or the weights of the forward pass.
          step: of a schedule of ``density`` or ``k``; not needed where they are numbers.
          format: ``"dense"``, arrays with zeros; or ``"bcoo"``, the pruned leaves as sparse arrays of
            ``jax.experimental.sparse`` with as many entries as are not 0, outside ``jit`` only.

        Returns:
          A pytree like ``params``.

        Raises:
          ValueError: there is a schedule and no step, or as ``topk_mag_tree``.
        """
        check_choice("format", format, ("dense", "bcoo"))
        hard = hard_topk_mag_tree(params, **_whole(self._options(step)))
        if format == "dense":
            return hard
        from jax.experimental.sparse import BCOO  # a quarter of a second, which others need not wait

        def stored(path: Any, leaf: Any) -> Any:
            return BCOO.fromdense(leaf) if _takes_part(path, leaf, self.prunes) else leaf

        return jax.tree_util.tree_map_with_path(stored, hard)

    def prunes(self, path: Any, leaf: Array) -> bool:
        """Whether a floating leaf is pruned; a predicate as ``include``, for ``share_of_nonzeros``."""
        return bool((self.include or matrices)(path, leaf)) and not (self.exclude and self.exclude(path, leaf))

    def _options(self, step: ArrayLike | None) -> dict[str, Any]:
        """Of the operators of trees, relaxed and hard."""
        name, amount = ("k", self.k) if self.density is None else ("density", self.density)
        if callable(amount):
            if step is None:
                raise ValueError(f"step must be given where {name} is a schedule, got None")
            amount = amount(step)
        return {name: amount, "include": self.prunes, "per_leaf": self.per_leaf, "groups": self.groups}


def _whole(options: dict[str, Any]) -> dict[str, Any]:
    """For a hard operator, which keeps whole entries: what a schedule of ``k`` gives is rounded down."""
    k = options.get("k")
    return options if k is None or isinstance(k, int) else options | {"k": jnp.floor(jnp.asarray(k))}


def _through(hard: Any, soft: Any, given: Any) -> Any:
    """``hard`` with the derivatives of ``soft``, where these are not what was ``given``, which takes no part."""
    return hard if soft is given else straight_through(hard, soft)
