"""Pruning of a network while it trains: the forward pass uses a relaxed top-k of the parameters that are trained.

Parameters may be any pytree. The optimiser keeps the dense parameters, which gradients reach through the operator
(Section 6 of Sander et al., 2023).
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from . import interface
from .gradients import straight_through
from .groups import NM, Blocks, Groups, check_groups, sizes, spread
from .interface import on_mesh, spec_of
from .layouts import layout_of
from .matrices import Matching, matching, matrices, stacked_layers, why_no_matrix, written
from .nonlinearities import HALF_SQUARE, IDENTITY, Nonlinearity
from .trees import Include, Tree, check_predicate, is_array, select_in_tree

Schedule = Callable[[Any], ArrayLike]  # a function of the step, like those of optax

__all__ = ["Pruner", "Scored", "matching", "matrices", "share_of_nonzeros"]


def __dir__() -> list[str]:
    """Returns the public names; the rest is implementation."""
    return list(__all__)


def share_of_nonzeros(params: Any, include: Include | None = None) -> Array:
    """Returns the share of the entries of a pytree that are not 0, a scalar of JAX's default float type.

    Args:
      params: pytree of arrays; of `Scored` parts the weights count.
      include: a function of key path and leaf that selects the floating leaves to count; ``None`` for ``matrices``.

    Raises:
      ValueError: no leaf is counted.

    See also:
      `Pruner`; `Pruner.describe` for each leaf.

    >>> share_of_nonzeros({"kernel": jnp.array([[1.0, 0.0], [0.0, 0.0]]), "bias": jnp.ones(2)})
    Array(0.25, dtype=float32)
    """
    leaves = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(_separate(params)[0])
        if _is_floating(leaf) and (include or matrices)(path, leaf)
    ]
    if not leaves:
        raise ValueError("params must have at least one floating leaf that is counted, got none")
    nonzero = jnp.stack([jnp.count_nonzero(leaf).astype(float) for leaf in leaves])
    return jnp.sum(nonzero) / sum(jnp.size(leaf) for leaf in leaves)


def _is_floating(leaf: Any) -> bool:
    return is_array(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


class Scored(NamedTuple, Generic[Tree]):
    """Weights with a score for each, by which a `Pruner` selects them instead of by their magnitude.

    `Pruner.scored` makes one. It is a pytree, which `jax.grad`, optimizers and checkpoints take in place of weights. It
    may be a part of a pytree, if it has all leaves that are pruned.
    To train the scores and freeze the weights, set the updates of the weights to 0, in optax by
    ``optax.multi_transform({"weights": optax.set_to_zero(), "scores": optimizer}, Scored("weights", "scores"))``.

    Attributes:
      weights: pytree of arrays.
      scores: pytree of the structure of ``weights``, with a floating array of the same shape for each leaf that is
        pruned. Other leaves are not used, and may be ``None``.

    See also:
      `Pruner.scored`, which makes one; `Pruner.harden` for the final weights.

    >>> pruner = Pruner(density=0.5, lam=2.0, straight_through=True)
    >>> scored = pruner.scored({"kernel": jnp.array([[1.0, -3.0], [2.0, 0.2]]), "bias": jnp.ones(2)})
    >>> pruner(scored)["kernel"]
    Array([[ 0., -3.],
           [ 2.,  0.]], dtype=float32)
    >>> jax.grad(lambda scored: pruner(scored)["kernel"].sum())(scored).scores["kernel"]
    Array([[-0.25,  0.  ],
           [ 0.25,  0.  ]], dtype=float32)
    """

    weights: Tree
    scores: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pruner:
    """Prunes the weights of a network: selects which, how many, and how softly at each step.

    ``density`` or ``k``, and ``lam``, may change during training. Each is a number, or a schedule: a function of the
    step, like those of optax. New values compile nothing.

    The choice of ``lam`` decides whether pruned weights learn. If it is far below the differences between weights, the
    operator is hard and pruned weights get no gradient; if it is large, nearly all weights take part. So let ``lam``
    fall geometrically over many orders of magnitude. With ``debias``, under which a large ``lam`` leaves the network
    unchanged, let it fall from about 10 to 1e-3, like ``optax.exponential_decay(10.0, steps, 1e-4)``.

    A leaf of zeros gets no gradient if larger weights compete with it: exclude it, or initialise it at random. With a
    budget of its own (``per_leaf``) that exceeds its non-zero entries, it gets the gradient of kept entries.

    Masks may be learned instead: given `Scored` parameters, a pruner selects by the scores, and multiplies weights by
    the relaxed or hard top-k mask of the scores. ``lam`` is then in their units, as in ``topk_mask_tree``. With
    ``straight_through`` every step keeps exactly the budget, while ``lam`` decides which scores get a gradient.

    Attributes:
      density: the share of the weights that is kept, in [0, 1]. Exactly one of ``density`` and ``k`` is given.
      k: how many weights are kept.
      lam: strength of the relaxation, as in ``topk_mag_tree``, or for `Scored` as in ``topk_mask_tree``.
      p: exponent of the regularisation, in (1, 2].
      debias: whether fully kept weights keep their value instead of being shrunk.
      straight_through: whether the forward pass uses the hard top-k, with the derivatives of the relaxed top-k.
      per_leaf: whether each matrix (each layer of a ``stacked`` one) has a budget of its own, instead of one budget for
        the whole network.
      groups: which weights are kept or pruned together, as in ``topk_mag_tree``: ``Blocks``, ``Channels``, ``NM``, or
        ``None``.
      include: selects the floating leaves that are pruned, a function of key path and leaf, like those of ``matching``;
        ``None`` for ``matrices``.
      exclude: selects included leaves that are not pruned; a function like ``include``.
      stacked: selects leaves that hold one layer at each index of an axis, like those of a scan over layers; a function
        like ``include``. Each layer is treated as a leaf of its own. By default a subtree counts as stacked if the
        first axes of all its leaves, even of biases and scales, have one size, or the second ones, and each leaf has
        another axis.
      stacked_axis: the axis of layers in leaves that ``stacked`` selects.
      layout: for ``Channels`` and ``NM``, the axes of leaves whose names do not tell: by a regular expression on paths,
        as for ``matching``, a letter for each axis, ``i`` for inputs, ``o`` for outputs and ``.`` for others, without
        the axis of layers; the first that fits counts. ``"io"`` are known to be the axes of kernels (``"..io"`` those
        of convolutions, also ``conv`` of any number of axes) and of embeddings, ``"oi"`` those of a ``weight``
        (PyTorch, Equinox), ``"ioo"`` those of a ``query``, ``key`` or ``value`` of three axes (also ``q``, ``q_proj``)
        and ``"iio"`` those of ``out``. Other kernels of three axes need an entry here, as does GPT-2's ``c_attn``.
      warn: whether a compiled or differentiated call warns, once for each program, of leaves and layers to which a
        common budget leaves nothing. That takes a callback to the host, which ``jax.export`` refuses.

    Raises:
      ValueError: an argument is known and out of range.

    See also:
      `sparse_topk.topk_mag_tree` for one call without schedules; `Scored` for scores to learn; `share_of_nonzeros` to
      see what is left.

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
    stacked: Include | None = None
    stacked_axis: int = 0
    layout: Mapping[str, str] | None = dataclasses.field(default=None, hash=False)
    warn: bool = True

    def __post_init__(self) -> None:
        interface.check_p(self.p)
        for flag in ("debias", "straight_through", "per_leaf", "warn"):
            interface.check_flag(flag, getattr(self, flag))
        if not callable(self.lam):
            interface.check_values("lam", self.lam, interface.STRENGTH)
        interface.check_one_of(self.k, self.density)
        if self.density is not None and not callable(self.density):
            interface.check_scalar("density", self.density, interface.SHARE)
        if self.k is not None and not callable(self.k):
            interface.check_scalar("k", self.k, interface.NON_NEGATIVE)
        check_groups(self.groups)
        for name in ("include", "exclude", "stacked"):
            check_predicate(name, getattr(self, name))
        interface.check_whole("stacked_axis", self.stacked_axis, 0, math.inf, "a whole number >= 0")
        for pattern, letters in (self.layout or {}).items():
            re.compile(pattern)
            if not isinstance(letters, str) or {"i", "o"} - set(letters) or set(letters) - set("io."):
                allowed = "a letter for each axis, 'i' for inputs, 'o' for outputs, '.' for others"
                raise ValueError(f"layout must have {allowed}, got {interface.shown(letters)} for {pattern!r}")

    @overload
    def __call__(self, params: Scored[Tree], step: ArrayLike | None = None) -> Tree: ...

    @overload
    def __call__(self, params: Tree, step: ArrayLike | None = None) -> Tree: ...

    def __call__(self, params: Any, step: ArrayLike | None = None) -> Any:
        """Returns the weights of the forward pass: pruned leaves after the relaxed operator, others unchanged.

        Args:
          params: pytree of arrays (also a module of nnx or Equinox), or `Scored`; other leaves are returned unchanged.
          step: the argument of the schedules, a scalar that may be traced; not needed without schedules.

        Returns:
          A pytree like ``params``, or like the weights of `Scored`.

        Raises:
          ValueError: a schedule has no step, `Scored` lacks scores of a pruned leaf, a pattern of ``matching`` matches
            no leaf, or ``topk_mag_tree`` raises, for example because no leaf is pruned.
        """
        lam, amount = self._at("lam", step), self._amount(step)
        weights, scores = _separate(params)
        leaves = self._leaves(weights)
        pruned = self._solve(weights, scores, amount, lam, leaves)
        if self.straight_through:

            def combined(hard: Any, soft: Any, leaf: Any) -> Any:
                return hard if soft is leaf else straight_through(hard, soft)  # leaves that take no part are unchanged

            hard = self._solve(weights, scores, amount, None, leaves)
            pruned = jax.tree.map(combined, hard, pruned, weights)
        if self.warn and not (self.per_leaf or isinstance(self.groups, NM)):
            _warn_of_empty_later(pruned, leaves)
        return pruned

    @overload
    def harden(
        self, params: Scored[Tree], step: ArrayLike | None = None, *, format: Literal["dense", "bcoo"] = "dense"
    ) -> Tree: ...

    @overload
    def harden(
        self, params: Tree, step: ArrayLike | None = None, *, format: Literal["dense", "bcoo"] = "dense"
    ) -> Tree: ...

    def harden(self, params: Any, step: ArrayLike | None = None, *, format: Literal["dense", "bcoo"] = "dense") -> Any:
        """Returns the final weights: those of largest magnitude unchanged, exact zeros elsewhere (``lam -> 0``).

        Of `Scored` the weights of largest score are kept.

        Outside ``jit`` a warning names leaves and layers that keep nothing.

        Args:
          params: pytree of arrays: the trained parameters, which may be `Scored`, or the weights of the forward pass.
          step: the argument of a schedule of ``density`` or ``k``; not needed if they are numbers.
          format: ``"dense"`` for arrays with zeros, or ``"bcoo"`` for pruned leaves as sparse arrays of
            ``jax.experimental.sparse`` that store the non-zero entries, outside ``jit`` only. Leaves that are divided
            over a mesh with Explicit axes are then replicated.

        Returns:
          A pytree like ``params``, or like the weights of `Scored`.
        """
        interface.check_choice("format", format, ("dense", "bcoo"))
        weights, scores = _separate(params)
        leaves = self._leaves(weights)
        hard = self._solve(weights, scores, self._amount(step), None, leaves)
        _warn_of_empty(_kept(hard, leaves), self.per_leaf, stacklevel=3)
        if format == "dense":
            return hard
        from jax.experimental.sparse import BCOO  # the import takes a quarter of a second

        def stored(path: Any, leaf: Any) -> Any:
            if not leaves[tuple(path)].pruned:
                return leaf
            if any(part is not None for part in spec_of(leaf)):  # JAX cannot find the non-zeros of a divided array
                leaf = jax.reshard(leaf, NamedSharding(jax.typeof(leaf).sharding.mesh, PartitionSpec()))
            return BCOO.fromdense(leaf)

        return jax.tree_util.tree_map_with_path(stored, hard)

    def scored(self, params: Tree) -> Scored[Tree]:
        """Returns parameters with scores to learn, which start from the magnitudes of the weights.

        A mask of these scores keeps what ``harden(params)`` keeps. Scores are in float32, or in float64 if the weights
        are. The entries of a group start from its root mean square. For other first scores, replace ``scores``.

        Args:
          params: pytree of arrays.

        Raises:
          ValueError: ``params`` have scores.
        """
        if _separate(params)[1] is not None:
            raise ValueError("params must be weights that have no scores yet, got Scored")
        leaves = self._leaves(params)

        def score(path: Any, leaf: Any) -> Array | None:
            entry = leaves[tuple(path)]
            if not entry.pruned:
                return None
            x = jnp.asarray(leaf).astype(interface.working_dtype(jnp.result_type(leaf)))
            if self.groups is None or isinstance(self.groups, NM):
                return jnp.abs(x)
            groups = self.groups.on(self._layout(path, x.ndim - (entry.axis is not None)))
            if entry.axis is not None:
                groups = groups.with_layer_axis()

            def of_groups(x: Array) -> Array:
                x = jnp.moveaxis(x, entry.axis or 0, 0)
                return jnp.moveaxis(spread(groups, sizes(groups, x, signed=False), x), 0, entry.axis or 0)

            return jax.jit(on_mesh(of_groups, PartitionSpec(*spec_of(x))))(x)

        return Scored(params, jax.tree_util.tree_map_with_path(score, params))

    def describe(self, params: Any, step: ArrayLike | None = None) -> str:
        """Returns a table of the leaves: which are pruned, to what budget, and why others are left alone.

        For ``Channels`` and ``NM`` it says which axes are inputs and outputs. If ``params`` are concrete arrays
        (outside ``jit``, no shapes of ``jax.eval_shape``), the table says how many entries each leaf or layer keeps
        now, and a warning names those that keep nothing.

        Args:
          params: pytree of arrays, or of their shapes, or `Scored`.
          step: the argument of a schedule of ``density`` or ``k``; not needed if they are numbers.

        >>> params = {"kernel": jnp.arange(8.0).reshape(4, 2), "bias": jnp.zeros(2)}
        >>> print(Pruner(density=0.25, lam=0.1).describe(params))
        bias    (2,)    left alone: by its name
        kernel  (4, 2)  pruned, keeps 2
        One budget for all: 2 of 8 entries.
        """
        weights, scores = _separate(params)
        amount, leaves = self._amount(step), self._leaves(weights)
        pruned = [leaf for leaf in leaves.values() if leaf.pruned]
        ((name, value),) = amount.items()
        unit = "entries" if self.groups is None else "groups"

        def budget(size: int) -> str:
            number = interface.share_of(value, size, np.dtype(np.float32)) if name == "density" else value
            return f"{float(number):,.6g} of {size:,}"

        kept = {}
        traced, arrays = jax.core.Tracer, jax.Array | np.ndarray
        if all(isinstance(leaf.value, arrays) and not isinstance(leaf.value, traced) for leaf in pruned):
            kept = _kept(self._solve(weights, scores, amount, None, leaves), leaves)
            _warn_of_empty(kept, self.per_leaf, stacklevel=3)
        rows = []
        for path, leaf in leaves.items():
            status = f"left alone: {leaf.reason}"
            if leaf.pruned:
                status = "pruned"
                if self.groups and not isinstance(self.groups, Blocks):
                    axis = self.groups.axis
                    status += f" along {axis}" if isinstance(axis, str) else f" along axis {axis}"
                if isinstance(self.groups, NM):
                    status += f" to {budget(self.groups.m)} in a row"
                elif self.per_leaf:
                    status += f" to {budget(self._competitors(path, leaf))} {unit}"
                status += "" if leaf.axis is None else f" in each of {jnp.shape(leaf.value)[leaf.axis]} layers"
                shape = _of_layer(leaf)
                if self.groups and (misfit := self.groups.on(self._layout(path, len(shape))).misfit(shape)):
                    status = f"refused: it {misfit} for {self.groups}"
                numbers = kept.get(path)
                status += "" if numbers is None else f", keeps {_range(np.asarray(numbers))}"
            rows.append((written(path), self._shape(path, leaf) if is_array(leaf.value) else "", status))
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        lines = [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}" for row in rows]
        if not (self.per_leaf or isinstance(self.groups, NM)):
            total = sum(self._competitors(path, leaf) for path, leaf in leaves.items() if leaf.pruned)
            lines.append(f"One budget for all: {budget(total)} {unit}.")
        return "\n".join(lines)

    def prunes(self, path: Any, leaf: Array) -> bool:
        """Returns whether a floating leaf is pruned; a function like ``include``, for ``share_of_nonzeros``.

        It sees a single leaf, and so does not recognise stacked layers that ``stacked`` does not select.
        """
        return not self._reason(path, leaf, self._layer_axis(path, leaf))

    def _layer_axis(self, path: Any, leaf: Any) -> int | None:
        """Returns the axis of the layers of a leaf that ``stacked`` selects."""
        selected = self.stacked and jnp.ndim(leaf) > self.stacked_axis and self.stacked(path, leaf)
        return self.stacked_axis if selected else None

    def _layout(self, path: Any, ndim: int) -> str:
        """Returns a letter for each axis of a leaf or its layers, as ``layout_of``."""
        for pattern, letters in (self.layout or {}).items():
            if re.search(pattern, written(path)):
                if len(letters) != ndim:
                    raise ValueError(f"layout must have {ndim} letters for {written(path)!r}, got {letters!r}")
                return letters
        return layout_of(path, ndim)

    def _shape(self, path: Any, leaf: "_Leaf") -> str:
        """Returns the shape of a leaf in words, with the meaning of the axes that groups are along."""
        shape = jnp.shape(leaf.value)
        if not leaf.pruned or self.groups is None or isinstance(self.groups, Blocks):
            return str(shape)
        meanings = [{"i": " in", "o": " out", ".": ""}[letter] for letter in self._layout(path, len(_of_layer(leaf)))]
        meanings = meanings or [""] * len(_of_layer(leaf))
        if leaf.axis is not None:
            meanings.insert(leaf.axis, " layers")
        return f"({', '.join(f'{size}{meaning}' for size, meaning in zip(shape, meanings, strict=True))})"

    def _competitors(self, path: Any, leaf: "_Leaf") -> int:
        """Returns how many entries or groups of a leaf, or with ``per_leaf`` of a layer, compete for one budget."""
        shape = _of_layer(leaf)
        groups = self.groups and self.groups.on(self._layout(path, len(shape)))
        number = math.prod(shape) if groups is None else groups.count(shape)
        layers = 1 if leaf.axis is None or self.per_leaf else jnp.shape(leaf.value)[leaf.axis]
        return number * layers

    def _reason(self, path: Any, leaf: Any, axis: int | None) -> str:
        """Returns why a floating leaf with layers along ``axis`` is left alone, or an empty string if it is pruned."""
        if self.exclude and self.exclude(path, leaf):
            return f"excluded by {self.exclude!r}" if isinstance(self.exclude, Matching) else "excluded"
        if self.include is None:
            return why_no_matrix(path, _of_layer(_Leaf(leaf, "", axis)))
        return "" if self.include(path, leaf) else "not included"

    def _leaves(self, params: Any) -> "dict[Any, _Leaf]":
        """Returns a description of each leaf by its path, including whether it is pruned."""
        flat = [(tuple(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)]
        floating = [(path, leaf) for path, leaf in flat if _is_floating(leaf)]
        predicates = [(name, getattr(self, name)) for name in ("include", "exclude", "stacked")]
        predicates += [("layout", matching(pattern)) for pattern in self.layout or ()]
        for name, predicate in predicates:
            if isinstance(predicate, Matching) and floating and not any(predicate(*pair) for pair in floating):
                there = ", ".join(repr(written(path)) for path, _ in floating[:3])
                raise ValueError(f"{name} must match a floating leaf of params, got {predicate!r}; there are {there}")
        if self.stacked is None:
            axes: dict[Any, int | None] = {**stacked_layers(floating)}
        else:
            axes = {path: self._layer_axis(path, leaf) for path, leaf in floating}
        leaves = {path: _Leaf(leaf, "no array of floats", None) for path, leaf in flat}
        for path, leaf in floating:
            axis = axes.get(path)
            reason = self._reason(path, leaf, axis) if math.prod(jnp.shape(leaf)) else "empty"
            leaves[path] = _Leaf(leaf, reason, axis)
        return leaves

    def _at(self, name: str, step: ArrayLike | None) -> Any:
        """Returns the value of the attribute ``name`` at a step."""
        value = getattr(self, name)
        if not callable(value):
            return value
        if step is None:
            raise ValueError(f"step must be given where {name} is a schedule, got None")
        return value(step)

    def _amount(self, step: ArrayLike | None) -> dict[str, Any]:
        name = "k" if self.density is None else "density"
        return {name: self._at(name, step)}

    def _solve(self, weights: Any, scores: Any, amount: dict[str, Any], lam: Any, leaves: "dict[Any, _Leaf]") -> Any:
        """Returns the weights after the relaxed operator, or after the hard one if ``lam`` is ``None``."""
        if scores is None:
            return self._select(HALF_SQUARE, weights, amount, lam, leaves)
        _check_scores(scores, leaves)
        masks = self._select(IDENTITY, scores, amount, lam, leaves)
        mask_at = {tuple(path): mask for path, mask in jax.tree_util.tree_leaves_with_path(masks)}

        def masked(path: Any, leaf: Any) -> Any:
            if not leaves[tuple(path)].pruned:
                return leaf
            dtype = interface.working_dtype(jnp.result_type(leaf))
            x, mask = jnp.asarray(leaf).astype(dtype), mask_at[tuple(path)].astype(dtype)
            kept = jnp.where(jnp.isinf(x) & (mask == 0), 0.0, x) * mask
            return kept.astype(jnp.result_type(leaf))

        return jax.tree_util.tree_map_with_path(masked, weights)

    def _select(
        self, phi: Nonlinearity, tree: Tree, amount: dict[str, Any], lam: Any, leaves: "dict[Any, _Leaf]"
    ) -> Tree:
        """Returns ``tree`` after the operator of ``phi``; the hard one rounds the ``k`` of a schedule down."""
        k = amount.get("k")
        if lam is None and callable(self.k):
            k = jnp.floor(jnp.asarray(k))
        selected = select_in_tree(
            phi,
            _layers_first(tree, leaves),
            k,
            amount.get("density"),
            lambda path, leaf: tuple(path) in leaves and leaves[tuple(path)].pruned,
            self.per_leaf,
            self.groups,
            lam=lam,
            p=self.p if lam is not None else 2.0,
            debias=self.debias or lam is None,
            stacked=lambda path, leaf: leaves[tuple(path)].axis is not None,
            layout=self._layout,
        )
        return _layers_first(selected, leaves, back=True)


class _Leaf(NamedTuple):
    """A leaf, why it is left alone (empty if it is pruned), and the axis along which it holds layers."""

    value: Any
    reason: str
    axis: int | None

    @property
    def pruned(self) -> bool:
        return not self.reason


def _of_layer(leaf: _Leaf) -> tuple[int, ...]:
    """Returns the shape of a leaf without the axis of layers."""
    return tuple(size for axis, size in enumerate(jnp.shape(leaf.value)) if axis != leaf.axis)


def _layers_first(tree: Any, leaves: dict[Any, _Leaf], *, back: bool = False) -> Any:
    """Returns the tree with the axis of layers in front in each pruned leaf, or from there ``back`` in its place."""

    def moved(path: Any, leaf: Any) -> Any:
        entry = leaves.get(tuple(path))
        if entry is None or not entry.pruned or not entry.axis:
            return leaf
        return jnp.moveaxis(leaf, 0, entry.axis) if back else jnp.moveaxis(leaf, entry.axis, 0)

    return jax.tree_util.tree_map_with_path(moved, tree)


def _kept(pruned: Any, leaves: dict[Any, _Leaf]) -> dict[Any, Array]:
    """Returns how many entries of pruned leaves or layers are not 0; leaves of other processes are left out."""
    counts = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(pruned):
        entry = leaves[tuple(path)]
        if entry.pruned and (isinstance(leaf, jax.core.Tracer) or interface.known(leaf)):
            axes = tuple(axis for axis in range(leaf.ndim) if axis != entry.axis)
            counts[tuple(path)] = jnp.count_nonzero(leaf, axis=axes)
    return counts


def _warn_of_empty(kept: dict[Any, Array], per_leaf: bool, stacklevel: int) -> bool:
    """Warns of leaves and layers that keep nothing, where this process can inspect them; returns whether it did."""
    empty = []
    for path, counts in kept.items():
        if interface.known(counts) and not (numbers := np.asarray(counts)).all():
            layers = f" (layers {', '.join(map(str, np.flatnonzero(numbers == 0)))})" if numbers.ndim else ""
            empty.append(f"{written(path)!r}{layers}")
    if empty:
        more = "a larger budget" if per_leaf else "per_leaf=True, a budget for each,"
        message = f"nothing but zeros is kept of {', '.join(empty)}; {more} keeps some"
        warnings.warn(message, stacklevel=stacklevel)
    return bool(empty)


def _warn_of_empty_later(pruned: Any, leaves: dict[Any, _Leaf]) -> None:
    """Warns once, when the program that is traced keeps nothing of one of several leaves or layers."""
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(pruned)):
        return
    kept = _kept(pruned, leaves)
    if sum(numbers.size for numbers in kept.values()) < 2:
        return
    paths = list(kept)
    warned: list[bool] = []

    def warn(counts: list[Array]) -> None:
        if not warned and _warn_of_empty(dict(zip(paths, counts, strict=True)), False, stacklevel=2):
            warned.append(True)

    jax.debug.callback(warn, list(kept.values()))


def _range(numbers: np.ndarray) -> str:
    low, high = numbers.min(), numbers.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _separate(params: Any) -> tuple[Any, Any]:
    """Returns weights, and their scores, ``None`` for a leaf outside of `Scored`; without any the tree of scores is."""

    def is_scored(node: Any) -> bool:
        return isinstance(node, Scored)

    nodes, treedef = jax.tree.flatten(params, is_leaf=is_scored)
    if not any(map(is_scored, nodes)):
        return params, None
    weights = [node.weights if is_scored(node) else node for node in nodes]
    scores = [node.scores if is_scored(node) else None for node in nodes]
    return jax.tree.unflatten(treedef, weights), jax.tree.unflatten(treedef, scores)


def _check_scores(scores: Any, leaves: dict[Any, _Leaf]) -> None:
    """Raises a ValueError unless each pruned leaf has floating scores of its shape."""
    score_at = {tuple(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(scores)}
    for path, leaf in leaves.items():
        score: Any = score_at.get(path)
        shape = jnp.shape(leaf.value)
        if leaf.pruned and not (_is_floating(score) and jnp.shape(score) == shape):
            described = f"{jnp.result_type(score)} of shape {jnp.shape(score)}" if is_array(score) else repr(score)
            raise ValueError(f"scores must have floats of shape {shape} at {written(path)!r}, got {described}")
