"""Predicates of the leaves of a pytree: which are weight matrices, hold stacked layers, or match a pattern."""

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .trees import Include

# Names of parameters that are not weight matrices, whatever their shape, in flax, Haiku, Equinox and big_vision.
_VECTORS = re.compile(
    r"^b\d*$|(?:^|_)(?:bias(?:es)?|scales?|offsets?|beta|gamma|mean|var|cls|tokens?|pos(?:ition(?:al|s)?|emb\w*)?)\d*(?:_|$)"
)
_WEIGHTS = re.compile(r"(?:^|_)(?:kernel|weights?|w)\d*(?:_|$)")


def matrices(path: Any, leaf: Array) -> bool:
    """Returns whether a leaf is a weight matrix, by name and shape: kernels and embeddings are, biases and scales not.

    The last name of the path decides; indices of lists do not count as names. A leaf of these names is no matrix,
    whatever its shape: ``bias``, ``b``, ``scale``, ``offset``, ``beta``, ``gamma``, ``mean``, ``var``, ``cls``,
    ``token`` and ``pos`` (also ``cls_token`` and ``pos_embedding``), nor is a leaf of a norm (``LayerNorm_0``,
    ``norm1``). Another leaf is a matrix if it has at least two axes. Leading axes of size 1 count only if the name is
    ``kernel``, ``weight`` or ``w``.

    Args:
      path: the key path of the leaf, as in ``jax.tree_util``.
      leaf: floating array.

    >>> tree = {"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2), "attention": {"bias": jnp.zeros((4, 8))}}
    >>> jax.tree_util.tree_map_with_path(matrices, tree)
    {'attention': {'bias': False}, 'bias': False, 'kernel': True}
    """
    return not why_no_matrix(path, jnp.shape(leaf))


def _names(path: Any) -> list[str]:
    """Returns the names in a key path, without the ``value`` that nnx appends to the path of a variable."""
    keys = [key for key in path if not isinstance(key, jax.tree_util.SequenceKey)]
    if len(keys) > 1 and keys[-1] == jax.tree_util.GetAttrKey("value"):
        keys = keys[:-1]
    return [jax.tree_util.keystr((key,), simple=True).lower() for key in keys]


def _is_vector(path: Any) -> bool:
    names = ["", "", *_names(path)]
    return _VECTORS.search(names[-1]) is not None or "norm" in names[-2]


def why_no_matrix(path: Any, shape: tuple[int, ...]) -> str:
    """Returns why a leaf, or a layer of it, is not a weight matrix, or an empty string."""
    if _is_vector(path):
        return "by its name"
    if not _WEIGHTS.search(["", *_names(path)][-1]):
        while shape and shape[0] == 1:
            shape = shape[1:]
    return "" if len(shape) >= 2 else "fewer than two axes"


def stacked_layers(leaves: list[tuple[Any, Any]]) -> set[Any]:
    """Returns the paths of leaves that hold one layer at each index of their first axis, like those of a scan.

    They are recognised by a subtree in which all leaves have a first axis of the same size and at least one more, even
    biases and scales, which would have a single axis without stacking.
    """
    parts: dict[Any, list[tuple[Any, tuple[int, ...]]]] = {}
    for path, leaf in leaves:
        for depth in range(len(path)):
            parts.setdefault(tuple(path[:depth]), []).append((path, jnp.shape(leaf)))

    def are_layers(part: list[tuple[Any, tuple[int, ...]]]) -> bool:
        shapes = [shape for _, shape in part]
        return (
            min(map(len, shapes)) >= 2 < max(map(len, shapes))
            and shapes[0][0] > 1
            and len({shape[0] for shape in shapes}) == 1
            and any(_is_vector(path) and math.prod(shape[1:]) > 1 for path, shape in part)
        )

    return {tuple(path) for part in parts.values() if are_layers(part) for path, _ in part}


@dataclasses.dataclass(frozen=True)
class Matching:
    """The predicate that ``matching`` returns, which also remembers the pattern for messages."""

    pattern: str

    def __call__(self, path: Any, leaf: Any) -> bool:
        """Returns whether the pattern is found in the path."""
        return re.search(self.pattern, written(path)) is not None

    def __repr__(self) -> str:
        return f"matching({self.pattern!r})"


def written(path: Any) -> str:
    """Returns a path as a string like ``encoder/Dense_0/kernel``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def matching(pattern: str) -> Include:
    """Returns a predicate that selects leaves by a regular expression on paths like ``encoder/Dense_0/kernel``.

    Args:
      pattern: a regular expression for ``re.search``.

    Returns:
      A function of key path and leaf, for ``include``, ``exclude`` and ``stacked``. A ``Pruner`` refuses a pattern that
      matches no leaf.

    >>> jax.tree_util.tree_map_with_path(matching("kernel$"), {"head": {"kernel": 1.0, "bias": 2.0}})
    {'head': {'bias': False, 'kernel': True}}
    """
    re.compile(pattern)
    return Matching(pattern)
