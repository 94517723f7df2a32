"""What is fixed when an operator is compiled, and the rows of numbers it is then given; both as one line of text."""

import dataclasses
import math
import zlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from scripts.fuzz.grouping import number
from scripts.fuzz.oracle.rounding import Precision

LAYOUTS = ("rows", "columns", "middle", "vmap", "several", "all")


@dataclasses.dataclass(frozen=True)
class Setting:
    """An operator with everything that compiles anew.

    Attributes:
      operator: name in ``scripts.fuzz.operators.OPERATORS``.
      n: entries of a row.
      rows: how many rows at once.
      dtype: of the entries.
      p: exponent of the regularisation.
      phi: nonlinearity, of the operators that take one.
      debias: whether ``topk_mag`` and its tree rescale.
      solver: of the top-k operators.
      target: of the losses.
      layout: ``rows`` (the last axis), ``columns`` (the first), ``middle``, ``vmap`` over vectors, ``several`` (a tuple
        of two axes) or ``all`` (``axis=None`` of matrices, under ``vmap``).
      where: whether some entries are masked out.
      known: whether ``k`` and ``lam`` are numbers known to the compiler, the same for all rows.
      optimized: whether the code is compiled as users do, or quickly.
      density: whether ``k`` is given as a share of what competes.
      groups: of the operators of pytrees, by their name in ``scripts.fuzz.grouping``; none if empty.
    """

    operator: str
    n: int
    rows: int = 64
    dtype: str = "float32"
    p: float = 2.0
    phi: str = "identity"
    debias: bool = False
    solver: str = "threshold"
    target: str = "one_hot"
    layout: str = "rows"
    where: bool = False
    known: bool = False
    optimized: bool = False
    density: bool = False
    groups: str = ""

    @property
    def matrix(self) -> tuple[int, int]:
        """The entries of a row as a matrix, as square as can be."""
        height = next(size for size in range(math.isqrt(self.n), 0, -1) if self.n % size == 0)
        return height, self.n // height

    @property
    def competing(self) -> int:
        """How many there are to select from."""
        if self.operator == "topk_plan":
            return self.matrix[1]
        return number(self.groups, self.n) if self.groups else self.n

    @property
    def working(self) -> str:
        """The dtype computed in."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def precision(self) -> Precision:
        """Of the dtype computed in."""
        return precision(self.working)


def precision(dtype: str) -> Precision:
    """Spacing and least normal number of a floating type."""
    info = jnp.finfo(dtype)
    return Precision(float(info.eps), float(info.tiny))


@dataclasses.dataclass
class Rows:
    """Numbers for ``rows`` problems.

    Attributes:
      x: entries, shape ``(rows, n)``, of the dtype of the setting.
      k: shape ``(rows,)``, of the working dtype, as ``lam`` is.
      lam: strengths.
      where: entries that take part, boolean, of the shape of ``x``.
      cotangent: weights of the outputs, whose weighted sum is differentiated; shape of the output, a row each.
      extra: targets of a loss, weights of a permutahedron, costs, of the shape of ``x``; limits of the columns of a
        plan, in the first row of each matrix; zeros elsewhere.
      kinds: what each row was drawn to be.
    """

    x: np.ndarray
    k: np.ndarray
    lam: np.ndarray
    where: np.ndarray
    cotangent: np.ndarray
    extra: np.ndarray
    kinds: list[str]

    def only(self, row: int, count: int) -> "Rows":
        """One of the rows, ``count`` times."""
        arrays = {name: np.repeat(getattr(self, name)[row : row + 1], count, axis=0) for name in _ARRAYS}
        return dataclasses.replace(self, **arrays, kinds=[self.kinds[row]] * count)


_ARRAYS = ("x", "k", "lam", "where", "cotangent", "extra")
# `where` is the name of a setting, too.
_WORDS = {"present" if name == "where" else name: name for name in _ARRAYS}
# Rows up to this long are written out, longer ones named by how they were drawn.
_SHORT = 16


def _texts(values: np.ndarray) -> str:
    if values.dtype == np.bool_:
        return "".join("01"[int(value)] for value in values)
    values = values if values.dtype == np.float64 else values.astype(np.float32)
    return ",".join(str(value).removesuffix(".0") for value in values)


def write(setting: Setting, rows: Rows, row: int, drawn: str) -> str:
    """One row of a setting as text that ``read`` understands; ``drawn`` says how it was drawn."""
    words = [setting.operator]
    for field in dataclasses.fields(setting)[1:]:
        value = getattr(setting, field.name)
        if value != field.default:
            words.append(f"{field.name}={value!r}" if isinstance(value, float) else f"{field.name}={value}")
    if setting.n > _SHORT:
        return " ".join([*words, drawn])
    for word, name in _WORDS.items():
        values = np.atleast_1d(getattr(rows, name)[row])
        if not (name == "where" and values.all()) and not (name == "extra" and not values.any()):
            words.append(f"{word}={_texts(values)}")
    return " ".join(words)


def _values(text: str, dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([[letter == "1" for letter in text]])
    return np.array([[float(word) for word in text.split(",")]]).astype(jnp.dtype(dtype))


def read(text: str) -> tuple[Setting, dict[str, Any]]:
    """The setting and the row that ``write`` wrote: arrays of one row, or ``seed``, ``config``, ``batch`` and ``row``.

    Raises:
      ValueError: the text is not of that form.
    """
    operator, *words = text.split()
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    if len(pairs) != len(words):
        raise ValueError("a problem is the name of an operator and words of the form name=value")
    kinds: dict[str, Any] = {field.name: type(field.default) for field in dataclasses.fields(Setting)} | {"n": int}
    settings: dict[str, Any] = {}
    for name in [name for name in pairs if name in kinds]:
        word, kind = pairs.pop(name), kinds[name]
        settings[name] = word == "True" if kind is bool else kind(word)
    setting = Setting(operator, **settings)
    data: dict[str, Any] = {}
    for name, word in pairs.items():
        if name in ("seed", "config", "batch", "row"):
            data[name] = int(word)
        elif name in _WORDS:
            dtype = setting.dtype if name in ("x", "cotangent") else "bool" if name == "present" else setting.working
            data[_WORDS[name]] = _values(word, dtype)
        else:
            raise ValueError(f"a problem has no {name!r}")
    return setting, data


def as_rows(setting: Setting, data: dict[str, Any]) -> Rows:
    """The row that was written out, as often as the setting has rows."""
    x = data["x"]
    zero = np.zeros((1, 1), setting.working)
    rows = Rows(
        x=x,
        k=data.get("k", zero)[:, 0],
        lam=data.get("lam", zero)[:, 0],
        where=data.get("where", np.ones(x.shape, bool)),
        cotangent=data["cotangent"],
        extra=data.get("extra", np.zeros(x.shape, setting.working)),
        kinds=["given"],
    )
    return rows.only(0, setting.rows)


def generator(*words: str | int) -> np.random.Generator:
    """Random numbers that depend on these words alone."""
    return np.random.default_rng([word if isinstance(word, int) else zlib.crc32(word.encode()) for word in words])
