"""Errors name the argument and its value; what is not known before tracing raises nothing."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import (
    baselines,
    hard_topk_mag,
    hard_topk_mask,
    isotonic_regression,
    knapsack_mask,
    owl_norm,
    soft_quantile,
    straight_through,
    topk_accuracy,
    topk_mag,
    topk_mag_tree,
    topk_mask,
)
from tests.ops.operators import CALLS, DICTIONARY, ROWS
from tests.ops.operators import X as ENTRIES

X = np.ones((3, 5), np.float32)
RELAXED = [topk_mask, topk_mag]
ALL = [*RELAXED, hard_topk_mask, hard_topk_mag]


def raises(name, value):
    return pytest.raises(ValueError, match=rf"^{name} .*{re.escape(str(value))}")


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("k", [-1, 6, np.int64(7), np.array([1, 6, 2]), jnp.float32(6), jnp.array([0, -2, 1])])
def test_k(operator, k):
    worst = next(v for v in np.ravel(k) if not 0 <= v <= 5)
    with raises("k", worst):
        operator(X, k)


@pytest.mark.parametrize("operator", ALL)
def test_k_counts_along_the_axis(operator):
    with raises("k", 4):
        operator(X, 4, axis=0)


@pytest.mark.parametrize("operator", RELAXED)
@pytest.mark.parametrize("lam", [-1.0, -1e-9, np.inf, np.array([1.0, -2.0, 1.0]), jnp.float32(-3)])
def test_lam(operator, lam):
    with raises("lam", np.ravel(lam)[1 if np.ndim(lam) else 0]):
        operator(X, 2, lam=lam)


@pytest.mark.parametrize("operator", RELAXED)
@pytest.mark.parametrize("p", [1, 1.0, 0.5, 2.1, -2, float("nan"), "2", None])
def test_p(operator, p):
    with raises("p", p):
        operator(X, 2, p=p)


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("axis", [2, -3, 1.5, "rows", (0, 0), ()])
def test_axis(operator, axis):
    with raises("axis", axis):
        operator(X, 2, axis=axis)


@pytest.mark.parametrize("operator", RELAXED)
def test_solver(operator):
    with raises("solver", "newton"):
        operator(X, 2, solver="newton")


@pytest.mark.parametrize("operator", ALL)
def test_a_scalar_has_no_axis(operator):
    with raises("x", "a scalar"):
        operator(1.0, 1)


@pytest.mark.parametrize("operator", ALL)
def test_shape_of_k(operator):
    with raises("k", (2,)):
        operator(X, np.array([1, 2]))


@pytest.mark.parametrize("operator", RELAXED)
def test_shape_of_lam(operator):
    with raises("lam", (3, 1)):
        operator(X, 2, lam=np.ones((3, 1)))


@pytest.mark.parametrize("operator", ALL)
def test_shape_of_where(operator):
    with pytest.raises(ValueError, match=r"where.*\(4,\)"):
        operator(X, 2, where=np.ones(4, bool))


def test_known_under_jit():
    with raises("k", 6):
        jax.jit(lambda x: topk_mask(x, 6))(X)
    with raises("lam", -1.0):
        jax.jit(lambda x: topk_mag(x, 2, lam=-1.0))(X)


def test_unknown_under_jit():
    assert jax.jit(lambda x, k: topk_mask(x, k))(X, 6).shape == X.shape


def test_traced_p_is_refused():
    with pytest.raises(ValueError, match=r"^p must be a Python number"):
        jax.jit(lambda x, p: topk_mask(x, 2, p=p))(X, 2.0)


@pytest.mark.parametrize("density", [-0.1, 1.5, 20])
def test_density(density):
    with raises("density", density):
        topk_mag_tree({"w": X}, density)


def test_tree_without_leaves():
    with raises("params", "none"):
        topk_mag_tree({}, 0.5)
    with raises("params", "none"):
        topk_mag_tree({"w": X}, 0.5, include=lambda path, leaf: False)


def test_tree_checks_lam_and_p():
    with raises("lam", -1):
        topk_mag_tree({"w": X}, 0.5, lam=-1)
    with raises("p", 3):
        topk_mag_tree({"w": X}, 0.5, p=3)


# Of some it matters that they are not taken for what they are not: True for 1, a column for one value per row.
PYTREE, COMPLEX, RAGGED = {"a": ENTRIES}, np.complex64(1), [[1.0], [1.0, 2.0]]
NO_NUMBER = ["3", None, PYTREE, COMPLEX, RAGGED, True, jax.random.key(0)]
NO_ARRAY = ["3", None, PYTREE, [ENTRIES, ENTRIES[0]], ENTRIES.astype(complex), 1.0]
NO_LABELS = [None, "3", np.zeros(ROWS), np.zeros((ROWS, 1), int), np.zeros(ROWS + 1, int)]
NO_WHOLE = ["3", None, 0, 1.5, True, ENTRIES]
COLUMN = np.ones((ROWS, 1))
WRONG = {
    "x": NO_ARRAY,
    "y": NO_ARRAY,
    "s": NO_ARRAY,
    "logits": NO_ARRAY,
    "k": [*NO_NUMBER, -1, np.full(ROWS + 1, 1.0), COLUMN, np.full(ROWS, -1.0)],
    "lam": [*NO_NUMBER, -1, np.full(ROWS + 1, 1.0), COLUMN, np.full(ROWS, -1.0)],
    "temperature": [*NO_NUMBER, 0, COLUMN],
    "sigma": [*NO_NUMBER, 0, COLUMN],
    "epsilon": [*NO_NUMBER, 0, COLUMN],
    "q": [*NO_NUMBER, 1.5, -0.1],
    "where": ["yes", PYTREE, np.ones(ENTRIES.shape), np.ones(ROWS + 1, bool)],
    "axis": [(0, 0), (), (0, 7), [0], "rows", 0.5, 7, -3, np.array([0, 1])],
    "p": ["2", None, 3, 1, np.array([1.5, 1.5]), jnp.float32(2), np.nan, PYTREE],
    "phi": ["cube", None, abs, ["abs"]],
    "solver": ["newton", None, 3, ENTRIES],
    "labels": NO_LABELS,
    "targets": NO_LABELS,
    "dictionary": [None, PYTREE, ENTRIES[0], ENTRIES[0, 0]],
    "max_k": NO_WHOLE,
    "num_samples": NO_WHOLE,
}


def wrong_arguments():
    for name, call in CALLS.items():
        public = not call.function.__name__.startswith("_")
        for argument in sorted(WRONG.keys() & inspect.signature(call.function).parameters.keys()) if public else ():
            yield pytest.param(call, argument, id=f"{name}-{argument}")


@pytest.mark.parametrize(("call", "argument"), list(wrong_arguments()))
def test_what_an_argument_cannot_be_is_said_in_one_line(call, argument):
    for value in WRONG[argument]:
        with pytest.raises(ValueError, match=rf"^{argument} must [^\n]*$") as error:
            call(**{argument: value})
        assert len(str(error.value)) < 260


def test_hints():
    with pytest.raises(ValueError, match=r"^axis must be an integer, different ones, or None .* got \(1, -1\)$"):
        topk_mask(X, 2, axis=(1, -1))
    for given, said in (({}, "neither"), ({"k": 2, "density": 0.5}, "both")):
        with pytest.raises(ValueError, match=rf"^k must be given or else density, got {said}$"):
            knapsack_mask(X, **given)
        with pytest.raises(ValueError, match=rf"^k must be given or else density, got {said}$"):
            topk_mask(X, **given)
    with pytest.raises(ValueError, match=r"^density must be in \[0, 1\], got 1.5$"):
        topk_mask(X, density=1.5)
    with pytest.raises(ValueError, match=r"^k must be .* shape \(3,\), got shape \(3, 1\): squeeze it"):
        topk_mask(X, np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"^labels must be .*shape \(3, 1\): squeeze them$"):
        topk_accuracy(X, np.zeros((3, 1), int), 1)
    with pytest.raises(ValueError, match=r"^x must have at least one entry along axis -1, got shape \(3, 0\)$"):
        soft_quantile(X[:, :0], 0.5)
    with pytest.raises(ValueError, match=r"^s must have at least one entry"):
        isotonic_regression(X[:, :0], 1.0)
    with pytest.raises(ValueError, match=r"^w must have shape \(5,\)"):
        owl_norm(X, np.ones((5, 1)))


@pytest.mark.parametrize("value", [np.int32(3), np.array([1, 2]), True])
def test_no_derivative_of_integers_goes_straight_through(value):
    with pytest.raises(ValueError, match=r"^soft must be a floating array, or it has no derivative, got (int|bool)"):
        straight_through(value, value)


def test_straight_through_is_of_one_shape_and_dtype():
    with pytest.raises(ValueError, match=r"^hard must have the shape and dtype of .* got float32 of shape \(3,\)"):
        straight_through(X[:, 0], X)
    with pytest.raises(ValueError, match=r"^hard must have the shape and dtype of soft, float32 .* got int32"):
        straight_through(X.astype(np.int32), X)


def test_scalars_and_matrices_of_the_codes():
    with pytest.raises(ValueError, match=r"^tolerance must be a scalar, got shape \(4,\)$"):
        baselines.sparse_code(ENTRIES, DICTIONARY, 0.1, tolerance=np.ones(4))
    with pytest.raises(ValueError, match=r"^max_iterations must be finite and >= 0, got -1"):
        baselines.scale_free_attention(ENTRIES, DICTIONARY, max_iterations=-1)
    with pytest.raises(ValueError, match=r"^keys must have the shape .*'keys', 1"):
        baselines.sparsemax_attention(ENTRIES[..., None], ENTRIES, ENTRIES)


def test_a_float_of_each_leaf_is_named_by_its_path():
    with pytest.raises(ValueError, match=r"^params\['a'\]\['b'\] must be real, got dtype complex64$"):
        topk_mag_tree({"a": {"b": np.complex64([1, 2])}}, 0.5)


def test_more_entries_than_can_be_counted():
    shape = jax.ShapeDtypeStruct((2**31,), np.float32)
    message = r"must have at most 2147483647 entries that compete with each other, got 2147483648"
    with pytest.raises(ValueError, match=f"^x {message}"):
        jax.eval_shape(lambda x: topk_mask(x, 1), shape)
    tree = {"a": jax.ShapeDtypeStruct((2**30,), np.float32), "b": jax.ShapeDtypeStruct((2**30,), np.float32)}
    with pytest.raises(ValueError, match=f"^params {message}"):
        jax.eval_shape(lambda tree: topk_mag_tree(tree, 0.5), tree)
    assert jax.eval_shape(lambda tree: topk_mag_tree(tree, 0.5, per_leaf=True), tree)["a"].shape == (2**30,)


def test_a_limit_that_is_not_0_is_said():
    with pytest.raises(ValueError, match=r"^epsilon must be positive, at least 1e-08, got 1e-09"):
        baselines.entropic_ot_topk_mask(ENTRIES, 2, epsilon=1e-9)
    with pytest.raises(ValueError, match=r"^lam must be 0 or in .*, got 1e\+40"):
        topk_mask(ENTRIES, 2, lam=10**40)
    np.testing.assert_array_equal(topk_mask(ENTRIES, 2, lam=10**20), topk_mask(ENTRIES, 2, lam=1e20))
