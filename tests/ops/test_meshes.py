"""Operators give on a mesh what they give on one device: values and gradients, rows and entries divided."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import ops
from tests.ops import oracles
from tests.ops.operators import CALLS, LAM, ROWS, WHERE, WIDER, K, N, X

# What `rowwise` does for all operators is tried with one of each kind of result; the rest goes ways of its own. Types
# are checked, which is where it goes wrong, those of narrow floats; programs below are carried out.
TRIED = (
    "topk_accuracy",
    "sparse_code",
    "soft_topk",
    "topk_solution",
    "soft_rank",
    "hard_topk_mask of integers",
    "gather_slots scatter_slots",
    "topk_plan",
    "topk_threshold prefix_topk_threshold",
    "straight_through",
    "topk_surrogate_loss",
    "topk_mag_tree",
    "topk_mask_tree",
    "mean of topk_fenchel_young_loss",
    "perturbed_topk_mask",
    "neuralsort_topk_mask",
    "scale_free_attention",
    "sparsemax_attention",
    "curvature_bound",
    "gates",
    "shrinkage",
)


def mesh_of(kind, shape=(2, 2)):
    return jax.make_mesh(shape, ("a", "b"), axis_types=2 * (kind,), devices=jax.devices()[:4])


def place(shape, rows="a", entries="b"):
    """Where an array lies by its shape: rows along one axis of the mesh, entries along the other."""
    if shape == (ROWS, N):
        return P(rows, entries)
    return P(rows, *(len(shape) - 1) * [None]) if shape[:1] == (ROWS,) else P()


def value_and_gradients(function, arrays):
    """Gradients of a sum over the results of ``function``, in all floating arrays."""
    rest = {name: value for name, value in arrays.items() if not jnp.issubdtype(value.dtype, jnp.floating)}

    def loss(free):
        y = function(free | rest)
        parts = [
            jnp.sum(jnp.sin(3.0 * leaf), dtype=jnp.float32)
            for leaf in jax.tree.leaves(y)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        ]
        return sum(parts, jnp.float32(0)), y

    (_, y), gradients = jax.value_and_grad(loss, has_aux=True)({k: v for k, v in arrays.items() if k not in rest})
    return y, gradients


def placed(arrays, mesh, places=place):
    return {key: jax.device_put(v, NamedSharding(mesh, places(v.shape))) for key, v in arrays.items()}


def narrow(arrays):
    return {
        k: v.astype(jnp.bfloat16) if v.shape == (ROWS, N) and v.dtype == np.float32 else v for k, v in arrays.items()
    }


@pytest.mark.parametrize("name", TRIED)
def test_explicit_axes(name, x64):
    """In double precision, where a type that is wrong is another one; `test_dtypes.py` tries what is not here."""
    call, mesh = CALLS[name], mesh_of(AxisType.Explicit)
    with jax.set_mesh(mesh):
        arrays = placed(narrow(call.arrays), mesh)
        y, gradients = jax.eval_shape(functools.partial(value_and_gradients, call), arrays)
    floats = {leaf.dtype.name for leaf in jax.tree.leaves(y) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    same = any(array.dtype == jnp.bfloat16 for array in arrays.values())
    assert floats <= {"bfloat16" if same else "float64"} | ({"float32"} if name in WIDER else set())
    for key, gradient in gradients.items():
        assert gradient.sharding.spec == jax.typeof(arrays[key]).sharding.spec
    for leaf in jax.tree.leaves(y):  # results lie where their argument does
        assert leaf.sharding.spec[:1] == place(leaf.shape)[:1]
        assert leaf.shape != (ROWS, N) or leaf.sharding.spec == P("a", "b")


# One of each loop: what it carries has to vary over the mesh as what it is given does.
MAPPED = ("topk_mag", "knapsack_mask", "dykstra", "soft_rank", "lam_of_support", "lapsum_topk_mask", "sparse_code")


@pytest.mark.parametrize("name", MAPPED)
def test_rows_in_shard_map(name):
    call, mesh, rows = CALLS[name], mesh_of(AxisType.Auto), functools.partial(place, rows=("a", "b"), entries=None)
    specs = {key: rows(value.shape) for key, value in call.arrays.items()}
    results = jax.tree.map(lambda leaf: rows(leaf.shape), jax.eval_shape(call, call.arrays))
    function = jax.shard_map(lambda arrays: call(arrays), mesh=mesh, in_specs=(specs,), out_specs=results)
    function = functools.partial(value_and_gradients, function)
    with jax.set_mesh(mesh):
        jax.eval_shape(function, placed(call.arrays, mesh, rows))


def loss(x, k, lam):
    return jnp.sum(jnp.square(ops.topk_mask(x, k, lam=lam)))


GRADIENTS = jax.grad(loss, (0, 1, 2))


def check_gradients(found):
    y = oracles.by_rows(oracles.pooled, X, K, LAM)
    expected = oracles.differentiated(X, K, LAM, cotangent=2 * y)
    for name, one in zip(("x", "k", "lam"), found, strict=True):
        known = ~np.isnan(expected[name])
        np.testing.assert_allclose(
            np.asarray(one).reshape(known.shape)[known], expected[name][known], rtol=1e-4, atol=2e-6
        )


@pytest.fixture
def explicit():
    mesh = mesh_of(AxisType.Explicit)
    with jax.set_mesh(mesh):
        yield lambda array, *spec: jax.device_put(array, NamedSharding(mesh, P(*spec)))


def test_every_argument_lies_where_it_will(explicit):
    arguments = explicit(X, None, ("a", "b")), explicit(K, "b"), explicit(LAM, ("a", "b"))
    found = jax.jit(GRADIENTS)(*arguments)
    check_gradients(found)
    assert [jax.typeof(g) for g in found] == [jax.typeof(a) for a in arguments]


def test_vmap_in_shard_map_over_one_axis(explicit):
    arguments = explicit(X, "a", "b"), explicit(K, "a"), explicit(LAM, "a")
    specs = P("a"), P("a"), P("a")
    rows = jax.vmap(GRADIENTS)  # over what is divided by hand; the entries are divided by the compiler
    check_gradients(jax.jit(jax.shard_map(rows, axis_names={"a"}, in_specs=specs, out_specs=specs))(*arguments))


def test_arrays_on_a_mesh_that_is_not_set():
    mesh = mesh_of(AxisType.Explicit)
    x, k = jax.device_put(X, NamedSharding(mesh, P("a", "b"))), jax.device_put(K, NamedSharding(mesh, P("a")))
    y = ops.topk_mask(x, k, lam=LAM, where=WHERE)
    expected = oracles.by_rows(oracles.pooled, np.where(WHERE, X, -np.inf), K, LAM)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-6)
    assert jax.typeof(y) == jax.typeof(x)


def test_tree_leaves_keep_their_sharding(explicit):
    tree = {"a": X, "b": X[0], "c": np.float32(0.3)}
    placed = {"a": explicit(X, "a", "b"), "b": explicit(X[0], ("a", "b")), "c": explicit(tree["c"])}
    kept = ops.topk_mag_tree(placed, k=19, lam=0.3)
    flat = np.concatenate([X.ravel(), X[0], [tree["c"]]])
    found = np.concatenate([np.ravel(leaf) for leaf in kept.values()])
    np.testing.assert_allclose(found, oracles.pooled(flat, 19, 0.3, kind="mag"), rtol=1e-4, atol=2e-6)
    assert jax.tree.map(jax.typeof, kept) == jax.tree.map(jax.typeof, placed)


@pytest.mark.parametrize(
    ("operator", "shape"),
    [(ops.topk_mask, (2**16,)), (ops.hard_topk_mask, (2**16,)), (ops.hard_topk_mask, (2, 2**16))],
    ids=["mask-row", "hard-row", "hard-rows"],
)
def test_the_compiler_gathers_nothing(operator, shape):
    mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Auto,))
    places = NamedSharding(mesh, P(*(len(shape) - 1) * [None], "a"))
    lowered = jax.jit(lambda x: operator(x, 50)).lower(jax.ShapeDtypeStruct(shape, jnp.float32, sharding=places))
    program = lowered.compile().as_text()
    assert " all-reduce(" in program
    assert not re.search(r" (all-gather|all-to-all|collective-permute)(-start)?\(", program)


# Vectors split over devices by hand: only scalars travel.
WIDE = oracles.samples((4, 64), dtype=np.float32)
WEIGHTS = oracles.samples((4, 64), 1, np.float32)


SPEC = P(None, "model")


def split(function, spec=SPEC):
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("data", "model"))
    return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)


MASK, MAGNITUDES = (functools.partial(one, k=5.5, lam=0.5, p=4 / 3) for one in (ops.topk_mask, ops.topk_mag))


@pytest.mark.parametrize(
    ("operator", "spec"), [(MASK, P(None, ("data", "model"))), (MAGNITUDES, SPEC)], ids=["mask", "mag"]
)
def test_values_and_gradients(operator, spec):
    """Rows over one axis or two, and beside other rows; the first device holds entries that are all absent."""
    x, kind = WIDE.copy(), "mask" if operator is MASK else "mag"
    x[:, :16] = -np.inf if operator is MASK else 0

    def loss(x):
        y = split(functools.partial(operator, axis_name=spec[1]), spec)(x)
        return jnp.sum(WEIGHTS * y), y

    gradient, y = jax.jit(jax.grad(loss, has_aux=True))(x)
    expected = oracles.differentiated(x, 5.5, 0.5, 4 / 3, kind, cotangent=WEIGHTS)
    np.testing.assert_allclose(y, expected["value"], atol=1e-6)
    assert np.abs(expected["x"]).max() > 0.1
    np.testing.assert_allclose(gradient, expected["x"], rtol=1e-5, atol=1e-5)


def test_hard_with_ties_across_devices():
    x = np.round(WIDE)
    sharded = split(functools.partial(ops.hard_topk_mag, k=20, axis_name="model"))
    chosen = np.stack([oracles.hard(np.abs(row), 20) for row in x])
    np.testing.assert_array_equal(jax.jit(sharded)(x), chosen * x)


@pytest.mark.parametrize("operator", [MAGNITUDES, functools.partial(ops.hard_topk_mask, k=5)])
def test_only_scalars_travel(operator):
    sharded = split(functools.partial(operator, axis_name="model"))
    jaxprs = [jax.make_jaxpr(sharded)(WIDE), jax.make_jaxpr(jax.grad(lambda x: jnp.sum(sharded(x) ** 2)))(WIDE)]
    communicating = ("psum", "pmax", "pmin", "all_gather", "all_to_all", "ppermute", "reduce_scatter")
    found = [e for jaxpr in jaxprs for e in oracles.equations(jaxpr) if e.primitive.name.startswith(communicating)]
    assert len(found) >= 4
    assert max(v.aval.size for e in found for v in e.invars) == len(WIDE)


def test_k_is_checked_against_the_whole():
    whole, too_many = (split(functools.partial(ops.topk_mask, k=k, axis_name="model")) for k in (64, 65))
    assert jax.eval_shape(whole, WIDE).shape == WIDE.shape
    with pytest.raises(ValueError, match=r"^k .*65"):
        jax.eval_shape(too_many, WIDE)
