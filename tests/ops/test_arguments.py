"""Errors name the argument and its value; what is not known before tracing raises nothing."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ops import hard_topk_mag, hard_topk_mask, topk_mag, topk_mag_tree, topk_mask

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
@pytest.mark.parametrize("axis", [2, -3, 1.5, "rows", None])
def test_axis(operator, axis):
    with raises("axis", axis):
        operator(X, 2, axis=axis)


@pytest.mark.parametrize("operator", RELAXED)
def test_solver(operator):
    with raises("solver", "newton"):
        operator(X, 2, solver="newton")


@pytest.mark.parametrize("operator", ALL)
def test_a_scalar_has_no_axis(operator):
    with raises("axis", -1):
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
