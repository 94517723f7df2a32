"""Predicates of the leaves of a pytree: which are weight matrices, hold stacked layers, or match a pattern."""

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .layouts import ATTENTION, has_word, last_names, parts
from .trees import Include

# What is left alone, by whole words of names in flax, Haiku, Equinox, PyTorch and big_vision: parameters of these
# modules, and parameters of these names. Tokens are those of classes, masks and registers, no vocabulary.
_MODULES = (
    "(?:layer|layr|batch|group|instance|rms)?norms?|ln|bn|gn"  # layrnorm is CLIP's
    "|(?:rel)?pos(?:ition(?:al|s)?|emb[a-z]*)?|wpe|bias|token_type|segment"
)
_PARAMETERS = "biases|scales?|offsets?|beta|gamma|mean|var|cls|tokens?(?!_emb)|log"  # A_log is Mamba's


def matrices(path: Any, leaf: Array) -> bool:
    """Returns whether a leaf is a weight matrix, by name and shape: kernels and embeddings are, biases and scales not.

    Whole words of the last two names of the path decide, the same for nested dictionaries and for keys like ``"a/b"``,
    ``"a.b"`` and ``("a", "b")``; indices do not count as names. Left alone, whatever their shape, are

    - parameters of norms (``LayerNorm_0``, ``norm1``, ``ln``, ``bn``), of positions (``pos_embed``, ``wpe``), of
      relative biases and of token types, unless they are called ``kernel``;
    - leaves called so themselves, or ``bias``, ``b``, ``scale``, ``offset``, ``beta``, ``gamma``, ``mean``, ``var``,
      ``cls``, ``token`` (also ``cls_token``; not ``token_embedding``) and ``log`` (``A_log``).

    Another leaf is a matrix if it has at least two axes. Leading axes of size 1 count only if the name is ``kernel``,
    ``weight`` or ``w``.

    Args:
      path: the key path of the leaf, as in ``jax.tree_util``.
      leaf: floating array.

    See also:
      `matching` for leaves by name; `Pruner`, whose usual ``include`` this is.

    >>> tree = {"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2), "wpe": {"embedding": jnp.zeros((4, 8))}}
    >>> jax.tree_util.tree_map_with_path(matrices, tree)
    {'bias': False, 'kernel': True, 'wpe': {'embedding': False}}
    """
    return not why_no_matrix(path, jnp.shape(leaf))


def _is_vector(path: Any) -> bool:
    module, last = last_names(path)
    if last == "b" or has_word(f"{_MODULES}|{_PARAMETERS}", last):
        return True
    return last != "kernel" and has_word(_MODULES, module)


def why_no_matrix(path: Any, shape: tuple[int, ...]) -> str:
    """Returns why a leaf, or a layer of it, is not a weight matrix, or an empty string."""
    if _is_vector(path):
        return "by its name"
    if not has_word("kernel|weights?|w", last_names(path)[1]):
        while shape and shape[0] == 1:
            shape = shape[1:]
    return "" if len(shape) >= 2 else "fewer than two axes"


def stacked_layers(leaves: list[tuple[Any, Any]]) -> dict[Any, int]:
    """Returns the axis, 0 or 1, along which leaves hold one layer at each index, by path, like those of a scan.

    They are recognised by a subtree in which all leaves have one size along that axis and at least one more axis, even
    biases and scales, which would have a single axis without stacking. The first axis comes first.
    """
    subtrees: dict[tuple[str, ...], list[tuple[Any, tuple[int, ...]]]] = {}
    for path, leaf in leaves:
        names = parts(path)
        for depth in range(len(names)):
            subtrees.setdefault(names[:depth], []).append((path, jnp.shape(leaf)))

    def is_vector_of_layers(path: Any, shape: tuple[int, ...], axis: int) -> bool:
        # The second axis of attention's bias [H, D/H] may have the size of that of its kernel [D, H, D/H].
        heads = axis == 1 and has_word(ATTENTION, last_names(path)[0])
        return _is_vector(path) and math.prod(shape) > shape[axis] and not heads

    def are_layers(subtree: list[tuple[Any, tuple[int, ...]]], axis: int) -> bool:
        shapes = [shape for _, shape in subtree]
        return (
            min(map(len, shapes)) >= 2 < max(map(len, shapes))
            and shapes[0][axis] > 1
            and len({shape[axis] for shape in shapes}) == 1
            and any(is_vector_of_layers(*pair, axis) for pair in subtree)
        )

    axes: dict[Any, int] = {}
    for axis in (0, 1):
        for subtree in subtrees.values():
            if are_layers(subtree, axis):
                axes = {tuple(path): axis for path, _ in subtree} | axes
    return axes


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
    """Returns a path as a string like ``encoder/Dense_0/kernel``, also if a tuple of these names is one key."""
    keys = [key.key if isinstance(key, jax.tree_util.DictKey) else None for key in path]
    return "/".join(
        "/".join(map(str, name)) if isinstance(name, tuple) else jax.tree_util.keystr((key,), simple=True)
        for key, name in zip(path, keys, strict=True)
    )


def matching(pattern: str) -> Include:
    """Returns a predicate that selects leaves by a regular expression on paths like ``encoder/Dense_0/kernel``.

    Args:
      pattern: a regular expression for ``re.search``.

    Returns:
      A function of key path and leaf, for ``include``, ``exclude`` and ``stacked``. A ``Pruner`` refuses a pattern that
      matches no leaf.

    See also:
      `matrices` for the usual choice; `Pruner`, which takes the predicate.

    >>> jax.tree_util.tree_map_with_path(matching("kernel$"), {"head": {"kernel": 1.0, "bias": 2.0}})
    {'head': {'bias': False, 'kernel': True}}
    """
    re.compile(pattern)
    return Matching(pattern)
