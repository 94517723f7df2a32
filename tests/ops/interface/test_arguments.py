"""Errors name the argument and its value; what is not known before tracing raises nothing."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ops
from ops import (
    NM,
    Blocks,
    Channels,
    baselines,
    hard_topk_mask,
    interface,
    topk_mag,
    topk_mag_tree,
    topk_mask,
)
from ops.baselines import coding, gates
from ops.isotonic import Dual, Dykstra, isotonic_regression
from ops.pruning import Pruner
from tests.ops.operators import CALLS, DICTIONARY, LABELS, ROWS, N
from tests.ops.operators import X as ENTRIES

X = np.ones((3, 5), np.float32)
TREE = {"a": ENTRIES, "b": ENTRIES[0]}


def test_every_entry_and_shape_is_checked():
    several = ("k", np.array([1, 6, 2]), 6), ("k", jnp.float32(6), 6), ("lam", np.array([1.0, -2, 1]), -2)
    for name, value, said in (*several, ("lam", jnp.float32(-3), -3), ("lam", np.inf, np.inf)):
        with pytest.raises(ValueError, match=rf"^{name} must .*{said}"):
            topk_mag(X, **{"k": 2} | {name: value})
    with pytest.raises(ValueError, match=r"^k must .*4"):
        topk_mag(X, 4, axis=0)
    with pytest.raises(ValueError, match=r"^k must be a whole number, got 2\.5$"):
        hard_topk_mask(X, 2.5)
    with pytest.raises(ValueError, match=r"^x must .*a scalar"):
        topk_mag(1.0, 1)


def test_jit_checks_only_known_values():
    for name, call in (("k", lambda x: topk_mask(x, 6)), ("lam", lambda x: topk_mag(x, 2, lam=-1.0))):
        with pytest.raises(ValueError, match=f"^{name} "):
            jax.jit(call)(X)
    assert jax.eval_shape(topk_mask, X, 6).shape == X.shape
    with pytest.raises(ValueError, match=r"^p must be a Python number"):
        jax.jit(lambda x, p: topk_mask(x, 2, p=p))(X, 2.0)
    with pytest.raises(ValueError, match=r"^k must be a whole number known at trace time"):
        jax.jit(baselines.neuralsort_topk_mask)(X, 2)


def test_each_value_is_checked_once(monkeypatch):
    checked, check = [], interface.check_values
    monkeypatch.setattr(interface, "check_values", lambda name, *rest: checked.append(name) or check(name, *rest))
    for operator in (topk_mask, ops.relaxed_topk_value, ops.topk_threshold):
        operator(X, 2, lam=1.0)
        operator(X, density=0.4, lam=1.0)
        assert checked == ["k", "lam", "density", "k", "lam"]
        checked.clear()


# Of some it matters that they are not taken for what they are not: True for 1, a column for one value per row.
PYTREE, COMPLEX, RAGGED = {"a": ENTRIES}, np.complex64(1), [[1.0], [1.0, 2.0]]
NO_NUMBER = ["3", None, PYTREE, COMPLEX, RAGGED, True, jax.random.key(0), np.nan]
NO_FLAG = ["no", None, 0, ENTRIES]
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
    "q": [*NO_NUMBER, 1.5, -0.1],
    "debias": NO_FLAG,
    "descending": NO_FLAG,
    "increasing": NO_FLAG,
    "in_magnitude": NO_FLAG,
    "per_leaf": NO_FLAG,
    "where": ["yes", PYTREE, np.ones(ENTRIES.shape), np.ones(ROWS + 1, bool)],
    "axis": [(0, 0), (), (0, 7), [0], "rows", 0.5, 7, -3, np.array([0, 1])],
    "p": ["2", None, 3, 1, np.array([1.5, 1.5]), jnp.float32(2), np.nan, PYTREE],
    "phi": ["cube", None, abs, ["abs"]],
    "solver": ["newton", None, 3, ENTRIES],
    "labels": NO_LABELS,
    "dictionary": [None, PYTREE, ENTRIES[0], ENTRIES[0, 0]],
    "num_samples": NO_WHOLE,
}


def wrong_arguments():
    for name, call in CALLS.items():
        public = not call.function.__name__.startswith("_")
        for argument in sorted(WRONG.keys() & inspect.signature(call.function).parameters.keys()) if public else ():
            yield pytest.param(call, argument, id=f"{name}-{argument}")


@pytest.mark.parametrize(("call", "argument"), list(wrong_arguments()))
def test_wrong_argument_error_is_one_line(call, argument):
    for value in WRONG[argument]:
        with pytest.raises(ValueError, match=rf"^{argument} must [^\n]*$") as error:
            call(**{argument: value})
        assert len(str(error.value)) < 260


def with_rest(name, **changed):
    """A call of an operator by its name in ``CALLS``, some of its arguments changed."""
    return lambda: CALLS[name](**changed)


def knapsack(**changed):
    """A knapsack of three entries, with a budget unless a density is given."""
    given = {"k": 1.0} if "density" not in changed else {}
    return lambda: ops.knapsack_mask(np.zeros(3, np.float32), **given | changed)


def pruned(**options):
    return lambda: Pruner(**{"lam": 0.1} | options)


def of_tree(**options):
    return lambda: topk_mag_tree({"w": ENTRIES}, **{"k": 1} | options)


MULTI_HOT = np.ones((ROWS, N), np.float32)
LOSS, REGRESSION = "topk_fenchel_young_loss", "isotonic_regression"
# A call, and what is said of which argument, with its value.
REFUSED = [
    (knapsack(costs=np.float32([1, 0, 1])), "costs must be positive and finite, got 0.0"),
    (knapsack(costs=-2.0, where=np.array([0, 0, 1], bool)), "costs must be positive and finite, got -2.0"),
    (knapsack(costs=np.float32([1, np.inf, 1])), "costs must be positive and finite, got inf"),
    (knapsack(costs=np.ones(4)), "costs .*4"),
    (knapsack(costs=np.array([2**33, 1, 1])), "costs must be whole numbers that int32 holds"),
    (knapsack(caps=np.float32([1, 1, -3])), "caps must be >= 0, got -3.0"),
    (knapsack(density=0.5, caps=np.inf), "caps must be >= 0 and finite, as the budget is a density, got inf"),
    (knapsack(lam=0.0), "lam must be in .*0.0"),
    (with_rest("topk_plan", k=5.0), r"k must be in \[0, 4\], the size along axis 1, got 5.0"),
    (with_rest("topk_plan", limit=-1.0), "limit must be >= 0, got -1.0"),
    (with_rest("topk_plan", limit=1.0), "limit must let columns take the 15 that rows select, got limits of 4 in all"),
    (with_rest("topk_plan", limit=np.ones(3)), r"limit must broadcast .* without axis 0, \(4,\), got shape \(3,\)"),
    (with_rest("topk_plan", axis=-1), "axis must be two integers, got -1"),
    (with_rest("topk_plan", axis=(0, -2)), r"axis must be .*\(0, -2\)"),
    (with_rest("topk_plan", tol=-1), "tol must be finite and >= 0, got -1"),
    (with_rest("topk_plan", max_iter=0), "max_iter must be at least 1, got 0"),
    (with_rest("soft_quantile", x=X[:, :0], lam=1.0), r"x must have at least one entry .* got shape \(3, 0\)"),
    (with_rest("soft_quantile", q=np.ones((2, 2))), r"q must be a scalar or have one axis, got shape \(2, 2\)"),
    (with_rest("project_permutahedron", w=np.ones(3)), r"w must broadcast to the shape of x, \(8, 4\), got shape"),
    (with_rest("k_support_norm", k=0), "k .*0"),
    (with_rest("owl_norm", w=np.ones(3)), "w must have shape .*3"),
    (with_rest("owl_norm", w=np.arange(4.0)), "w .*non-increasing"),
    (lambda: ops.k_support_norm(X, density=0.1), "density must be at least 1 / 5, .* along axis -1, got 0.1"),
    (with_rest("soft_topk", num_slots=13), r"num_slots must be in \[1, 4\], the size along axis -1, got 13"),
    (lambda: ops.gather_slots(X[0], [0]), r"values must have shape \(\*batch, n, width\), got \(5,\)"),
    (lambda: ops.gather_slots(X[None], [[0], [0]]), r"indices must begin with the batch of values, \(1,\), got shape"),
    (lambda: ops.gather_slots(X, [0.5]), "indices must be integers"),
    (lambda: ops.scatter_slots(X, [0], [1.0], 4), "outputs must have the shape of indices"),
    (lambda: ops.scatter_slots(X[:1], [0], 1.0, 4), r"weights must have the shape of indices, \(1,\), got \(\)"),
    (lambda: ops.scatter_slots(X[:1], [0], [1.0], 0), "n must be at least 1, got 0"),
    (lambda: ops.scatter_slots(X[:1], [0], [1.0], 4, batch_dims=2), r"batch_dims must be in \[0, 1\].*got 2"),
    (with_rest("lam_of_support", support=2.5), "support must be .*2.5"),
    (with_rest("topk_surrogate_loss", k=0.5), r"k must be in \[1, 4\].*0.5"),
    (with_rest("topk_surrogate_loss", labels=LABELS + 3), r"labels must be in \[0, 4\) .* got 6"),
    (with_rest("topk_accuracy", k=5), r"k must be in \[1, 4\], .* got 5"),
    (with_rest("topk_accuracy", k=(1, 0)), r"k must be in \[1, 4\], .* got 0"),
    (lambda: hard_topk_mask(X, density=np.nan), "density must be .*nan"),
    (of_tree(density=np.nan, k=None), "density must be .*nan"),
    (pruned(density=np.nan), "density must be .*nan"),
    (with_rest("topk_fenchel_young_mixture", weights=np.array([0.5, np.nan])), "weights must be .*nan"),
    (with_rest(LOSS, example_weights=np.nan), "example_weights must be .*nan"),
    (lambda: (fit := ops.topk_threshold(X, 2)).ema(fit, np.nan), "decay must be .*nan"),
    (pruned(k=1, debias="no"), "debias must be True or False, got 'no'"),
    (of_tree(debias="no"), "debias must be True or False, got 'no'"),
    (of_tree(per_leaf=1), "per_leaf must be True or False, got 1"),
    (of_tree(include=3), "include must be a function of key path and leaf, got 3"),
    (pruned(k=1, warn=3), "warn must be True or False, got 3"),
    (lambda: coding.soft_threshold_topk(X, 1), r"x must be a vector .*got shape \(3, 5\)"),
    (lambda: ops.prefix_topk_threshold(X, [1, 2]), r"k must broadcast to the shape of x, \(3, 5\), got shape \(2,\)"),
    (lambda: hard_topk_mask(X, 10**400), "k must be .*got 1e"),
    (with_rest(LOSS, target="hard"), "target .*'hard'"),
    (with_rest(LOSS, labels=np.full(8, 9)), "labels .*9"),
    (with_rest(LOSS, labels=2 * MULTI_HOT), "labels .*2"),
    (with_rest(LOSS, reduction="average"), "reduction must be one of 'none', 'mean', 'sum', got 'average'$"),
    (with_rest(LOSS, ignore_index=-1, labels=MULTI_HOT), "ignore_index must be None unless labels are integers"),
    (with_rest(LOSS, class_weights=np.ones(4), labels=MULTI_HOT), "class_weights must be None unless labels are int"),
    (with_rest(LOSS, ignore_index=0.5), r"ignore_index must be a whole number .*0\.5"),
    (with_rest(LOSS, ignore_index=-100, labels=np.full(8, -1)), "labels .*-1"),
    (with_rest(LOSS, class_weights=np.ones(8)), r"class_weights must have shape \(4,\).*\(8,\)"),
    (with_rest(LOSS, class_weights=-np.ones(4)), "class_weights .*-1"),
    (with_rest(LOSS, example_weights=-np.ones(8)), "example_weights .*-1"),
    (with_rest(LOSS, example_weights=np.ones(9)), r"example_weights .*shape \(8,\), got shape \(9,\)"),
    (with_rest(LOSS, label_smoothing=1.5), r"label_smoothing .*1\.5"),
    (with_rest("topk_fenchel_young_mixture", weights=np.ones((2, 2))), "weights .*2"),
    (with_rest(REGRESSION, solver="dykstra", p=1.5), "p must be 2 for the solver 'dykstra', got 1.5"),
    (with_rest(REGRESSION, solver=Dykstra(max_iter=0)), "max_iter must be at least 1, got 0"),
    (with_rest(REGRESSION, solver=Dual(tol=-1.0)), "tol must be at least 0, got -1.0"),
    (with_rest(REGRESSION, lam=0.0), r"lam must be in \[1e-32, 1e\+32\], got 0.0"),
    (with_rest(REGRESSION, w=-1.0, phi="exp"), "w must not be negative for phi='exp', got -1.0"),
    (with_rest(REGRESSION, w=np.ones(3)), r"w must broadcast to the shape of s, \(8, 4\), got shape \(3,\)"),
    (lambda: isotonic_regression(X[:, :0], 1.0), r"s must have at least one entry along axis -1, got shape \(3, 0\)"),
    (lambda: topk_mask(X, 2, solver="pav", axis_name="devices"), "axis_name .*"),
    (lambda: Blocks((0, 2)), r"shape must be a tuple of positive whole numbers, got 0$"),
    (lambda: Channels((1, 1)), r"axis must be a whole number or a tuple of different ones, got \(1, 1\)$"),
    (lambda: NM(0), "m must be a positive whole number, got 0$"),
    (lambda: NM(4, None), "axis must be a whole number .*, got None$"),
    (
        of_tree(groups=NM(3)),
        r"params\['w'\] must have a multiple of 3 entries along axis 0 for NM\(m=3, axis='inputs'\), got",
    ),
    (of_tree(groups=Blocks((2, 2, 2))), r"params\['w'\] must have at least 3 axes for Blocks"),
    (of_tree(groups=Channels(2)), r"params\['w'\] must have axis 2 for"),
    (of_tree(groups=Channels((1, -1))), r"params\['w'\] must have as many different axes"),
    (of_tree(groups=Channels(), k=8), r"k must be in \[0, 4\], the number of groups, got 8$"),
    (of_tree(groups=NM(2), k=3), r"k must be in \[0, 2\], the number of entries of a run, got 3$"),
    (of_tree(lam=-1), "lam .*-1"),
    (of_tree(p=3), "p .*3"),
    (pruned(), "k must be given, or else density, got k=None, density=None$"),
    (pruned(k=1, density=float), "k must be given, or else density, got k=1, density=<class 'float'>"),
    (pruned(lam=-1.0, k=1), r"lam must be 0 or in .* got -1\.0$"),
    (pruned(k=-1), "k must be finite and >= 0, got -1$"),
    (pruned(k=1, groups=4), "groups must be None, Blocks, Channels or NM, got 4$"),
    (pruned(k=1, p=3), r"p must be in \(1, 2\], got 3"),
    (pruned(k=1, include="kernel"), "include must be a function of key path and leaf, got 'kernel'$"),
    (lambda: ops.straight_through(3, 3), "soft must be a floating array, or it has no derivative, got int"),
    (lambda: ops.straight_through(X[:, 0], X), r"hard must have the shape and dtype of .* got float32 of shape \(3,\)"),
    (lambda: ops.straight_through(X.astype(np.int32), X), "hard must have .* of soft, float32 .* got int32"),
    (with_rest("sparse_code", lam=0.0), "lam must be positive and finite, at least 1.2e-38, got 0"),
    (with_rest("sparse_code", lam=np.ones(5)), r"lam must be a scalar or broadcast to one value per row, shape \(8,\)"),
    (with_rest("sparse_code", tol=-1e-3), "tol must be finite and >= 0, got -0.001"),
    (with_rest("sparse_code", tol=np.ones(4)), r"tol must be a scalar, got shape \(4,\)$"),
    (with_rest("sparse_code", max_iter=-1), "max_iter must be finite and >= 0, got -1"),
    (with_rest("sparse_code", dictionary=DICTIONARY.T), r"x must have the shape \(..., 3\) of the dictionary, got"),
    (lambda: coding.sparsemax_attention(X[0], X, X), r"query must have the shape .* got shape \(5,\)"),
    (lambda: coding.sparsemax_attention(X, X[:, :4], X), r"keys must have the shape .*'keys', 5.* got shape \(3, 4"),
    (lambda: coding.sparsemax_attention(X, X, X[:2]), r"values must have the shape \(3, 'outputs'\), got shape"),
    (lambda: coding.Lista(DICTIONARY, 0.1, 0), "layers must be at least 1, got 0"),
    (lambda: coding.Lista(DICTIONARY, 0.0, 1), "lam must be positive and finite"),
    (lambda: coding.Lista(DICTIONARY, 0.1, 2, "hard"), "shrinkage must be one of 'soft', 'sigshrink', got 'hard'"),
    (with_rest("neuralsort_topk_mask", k=2.5), r"k must be a whole number .* got 2\.5"),
    (with_rest("perturbed_topk_mask", k=1.5), "k must be .*got 1.5"),
    (
        lambda: gates.binary_concrete_cdf(0.5, 0.0, temperature=-1.0),
        "temperature must be positive and finite, .*, got -1.0",
    ),
    (
        lambda: gates.sample_gates(jax.random.key(0), X, temperature=-1.0),
        "temperature must be positive and finite, .*, got -1",
    ),
    (lambda: topk_mask(X, 2, axis=(1, -1)), r"axis must be an integer, different integers, or None .* got \(1, -1\)$"),
    (lambda: topk_mask(X, np.ones((3, 1))), r"k must be .* shape \(3,\), got shape \(3, 1\): squeeze it"),
    (lambda: topk_mask(X, 2, lam=10**40), r"lam must be 0 or in .*, got 1e\+40"),
    (
        lambda: topk_mag_tree({"a": {"b": np.complex64([1, 2])}}, k=1),
        r"params\['a'\]\['b'\] must be real, got dtype com",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_error_names_argument_and_value(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


@pytest.mark.parametrize("operator", [ops.topk_mag_tree, ops.topk_mask_tree])
def test_budgets_of_trees(operator):
    for options, message in (
        ({}, r"k must be given, or else density, got k=None, density=None$"),
        ({"density": 0.1, "k": 3}, r"k must be given, or else density, got k=3, density=0\.1$"),
        ({"density": 1.5}, r"density must be in \[0, 1\], got 1\.5$"),
        ({"k": 37}, r"k must be in \[0, 36\], the number of entries, got 37$"),
        ({"k": 5, "per_leaf": True}, r"k must be in \[0, 4\], the number of entries of the smallest leaf .* got 5$"),
        ({"k": [1, 2]}, r"k must be a scalar, got shape \(2,\)$"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            operator(TREE, **options)
    with pytest.raises(ValueError, match=r"^k must be a whole number, got 2\.5$"):
        Pruner(k=2.5, lam=0.1).harden(TREE)


def test_more_entries_than_can_be_counted():
    shape = jax.ShapeDtypeStruct((2**31,), np.float32)
    message = r"must have at most 2147483647 competing entries, got 2147483648"
    with pytest.raises(ValueError, match=f"^x {message}"):
        jax.eval_shape(lambda x: topk_mask(x, 1), shape)
    tree = {"a": jax.ShapeDtypeStruct((2**30,), np.float32), "b": jax.ShapeDtypeStruct((2**30,), np.float32)}
    with pytest.raises(ValueError, match=f"^params {message}"):
        jax.eval_shape(lambda tree: topk_mag_tree(tree, density=0.5), tree)
    assert jax.eval_shape(lambda tree: topk_mag_tree(tree, density=0.5, per_leaf=True), tree)["a"].shape == (2**30,)
