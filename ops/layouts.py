"""Reads the path of a leaf: its names, in any form of tree, and which of its axes are inputs and which outputs."""

import re
from typing import Any

import jax

ATTENTION = "query|key|value|q|k|v|qkv|kv"  # words for the modules that make heads


def parts(path: Any) -> tuple[str, ...]:
    """Returns the names and indices in a key path; a key ``"a/b"``, ``"a.b"`` or ``("a", "b")`` holds two.

    The ``value`` that nnx appends to the path of a variable is left out.
    """
    keys = tuple(path)
    if len(keys) > 1 and keys[-1] == jax.tree_util.GetAttrKey("value"):
        keys = keys[:-1]
    names: list[str] = []
    for key in keys:
        name = key.key if isinstance(key, jax.tree_util.DictKey) else jax.tree_util.keystr((key,), simple=True)
        for part in name if isinstance(name, tuple) else (name,):
            names += re.split(r"[/.]", str(part))
    return tuple(names)


def last_names(path: Any) -> tuple[str, str]:
    """Returns the words of the last two names of a path, as ``layer_norm`` for ``LayerNorm_0``; indices do not count.

    They are the names of the module and of the parameter; a name that there is not is empty.
    """
    *_, module, last = ("", "", *(part for part in parts(path) if not part.isdigit()))
    # Words end at underscores, digits, and where a capital begins another: RMSNorm has two.
    module, last = ("_".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)).lower() for name in (module, last))
    return module, last


def has_word(words: str, name: str) -> bool:
    """Returns whether one of the ``words`` (a regular expression, as ``bias|scales?``) is a whole word of a name."""
    return re.search(rf"(?:^|_)(?:{words})(?:_|$)", name) is not None


def layout_of(path: Any, ndim: int) -> str:
    """Returns a letter for each axis of a weight: ``i`` for inputs, ``o`` for outputs, ``.`` for others.

    It is empty where names and number of axes do not tell: a kernel of three axes may be that of a convolution, of a
    ``DenseGeneral`` with two axes of inputs or with two of outputs, or of several experts; and the ``c_attn``, ``c_fc``
    and ``c_proj`` of GPT-2 have their inputs first in some libraries and last in others.
    """
    module, last = last_names(path)
    if ndim < 2:
        return "o" * ndim
    if has_word("c", module):
        return ""
    if has_word("weights?", last):  # PyTorch and Equinox; their embeddings are [tokens, D]
        return "io" if ndim == 2 and has_word(r"embed\w*|emb|wte|shared", module) else "oi" + "." * (ndim - 2)
    name = module if last in ("kernel", "w") else last
    if ndim > 2 and not has_word(r"\w*conv\w*", name):
        if has_word(ATTENTION, name):
            return "ioo" if ndim == 3 else ""
        if ndim == 3:
            return "iio" if has_word("out|o", name) else ""
    return "." * (ndim - 2) + "io"
