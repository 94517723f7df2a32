"""Which leaves of a pytree of parameters are matrices of weights, by name and shape, and which hold stacked layers."""

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .leaves import Include

# Names of parameters that are no weights between units, whatever their shape: of flax, Haiku, Equinox and big_vision.
_VECTORS = re.compile(
    r"^b\d*$|(?:^|_)(?:bias(?:es)?|scales?|offsets?|beta|gamma|mean|var|cls|tokens?|pos(?:ition(?:al|s)?|emb\w*)?)\d*(?:_|$)"
)
_WEIGHTS = re.compile(r"(?:^|_)(?:kernel|weights?|w)\d*(?:_|$)")


def matrices(path: Any, leaf: Array) -> bool:
    """Whether a leaf is a matrix of weights, by its name and its shape: kernels and embeddings, not biases and scales.

    The last name of the path decides, in which numbers of a list do not count. Left alone are leaves named ``bias``,
    ``b``, ``scale``, ``offset``, ``beta``, ``gamma``, ``mean``, ``var``, ``cls``, ``token`` or ``pos`` (``cls_token``
    and ``pos_embedding`` too), whatever their shape, and those of a norm (``LayerNorm_0``, ``norm1``). Others are
    matrices if they have two axes or more. Axes of size 1 in front count only where the name is ``kernel``, ``weight``
    or ``w``.

    Args:
      path: its key path, of ``jax.tree_util``.
      leaf: floating array.

    >>> tree = {"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2), "attention": {"bias": jnp.zeros((4, 8))}}
    >>> jax.tree_util.tree_map_with_path(matrices, tree)
    {'attention': {'bias': False}, 'bias': False, 'kernel': True}
    """
    return not why_no_matrix(path, jnp.shape(leaf))


def _names(path: Any) -> list[str]:
    """The names in a key path; a variable of nnx has its array below its own name, as ``value``."""
    keys = [key for key in path if not isinstance(key, jax.tree_util.SequenceKey)]
    if len(keys) > 1 and keys[-1] == jax.tree_util.GetAttrKey("value"):
        keys = keys[:-1]
    return [jax.tree_util.keystr((key,), simple=True).lower() for key in keys]


def _is_vector(path: Any) -> bool:
    names = ["", "", *_names(path)]
    return _VECTORS.search(names[-1]) is not None or "norm" in names[-2]


def why_no_matrix(path: Any, shape: tuple[int, ...]) -> str:
    """Says why a leaf, or a layer of it, is no matrix of weights; empty if it is one."""
    if _is_vector(path):
        return "by its name"
    if not _WEIGHTS.search(["", *_names(path)][-1]):
        while shape and shape[0] == 1:
            shape = shape[1:]
    return "" if len(shape) >= 2 else "fewer than two axes"


def stacked_layers(leaves: list[tuple[Any, Any]]) -> set[Any]:
    """The paths of leaves that hold one layer at each index of their first axis, as scans over layers have them.

    These are the leaves of a part of the tree in which all have one first axis and another one behind, also a bias or a
    scale, which by themselves have one alone.
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
    """A predicate of ``matching``, which knows its pattern."""

    pattern: str

    def __call__(self, path: Any, leaf: Any) -> bool:
        """Whether the pattern is found in the path."""
        return re.search(self.pattern, written(path)) is not None

    def __repr__(self) -> str:
        return f"matching({self.pattern!r})"


def written(path: Any) -> str:
    """The path as ``encoder/Dense_0/kernel``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def matching(pattern: str) -> Include:
    """The leaves in whose path a regular expression is found; a path is written ``encoder/Dense_0/kernel``.

    Args:
      pattern: as in ``re.search``.

    Returns:
      A predicate of key path and leaf, for ``include``, ``exclude`` and ``stacked``. A ``Pruner`` refuses one that
      matches nothing.

    >>> jax.tree_util.tree_map_with_path(matching("kernel$"), {"head": {"kernel": 1.0, "bias": 2.0}})
    {'head': {'bias': False, 'kernel': True}}
    """
    re.compile(pattern)
    return Matching(pattern)
