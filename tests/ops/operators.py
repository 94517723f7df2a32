"""A call of every public operator: what the tests of meshes and of messages are run over."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ops
from ops import baselines
from ops.baselines import coding, gates
from ops.isotonic import Dual, Dykstra, isotonic_regression, topk_solution
from tests.ops import oracles

ROWS, N = 8, 4
X = oracles.samples((ROWS, N), 1, np.float32)
W = oracles.samples((ROWS, N), 2, np.float32)
K = np.float32([1.5, 2, 3.3, 1, 0.5, 2.5, 3, 1.2])
WHOLE = np.float32([1, 2, 3, 1, 2, 2, 3, 1])
LAM = np.float32([0.3, 1, 0.5, 2, 0.1, 0.7, 3, 0.2])
LABELS = np.int32([0, 3, 1, 2, 2, 0, 1, 3])
WHERE = np.arange(ROWS * N).reshape(ROWS, N) % 5 > 0
DICTIONARY = np.eye(N, 3, dtype=np.float32) + 0.2 * oracles.samples((N, 3), 3, np.float32)
DECREASING = np.linspace(1, 0, N, dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class Call:
    """A function and valid arguments of it.

    Attributes:
      function: the operator.
      arrays: arguments by name. Those of shape ``(ROWS, N)`` hold entries, those of shape ``(ROWS,)`` one value per
        row; others belong to neither.
      options: those that are known at trace time.
      split: whether it has an ``axis_name``.
      by_rows: whether a row's result is its own: not a sum over rows, nor of noise drawn for all of them.
    """

    function: Callable[..., Any]
    arrays: dict[str, np.ndarray]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    split: bool = False
    by_rows: bool = True

    def __call__(self, arrays=None, **changed):
        """The result, with some of the arguments changed."""
        return self.function(**(self.arrays if arrays is None else arrays) | self.options | changed)


def _call(function, *, split=False, by_rows=True, **arguments):
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    options = {name: value for name, value in arguments.items() if name not in arrays}
    return Call(function, arrays, options, split, by_rows)


def _tree(x, w, steps, density, **options):
    return ops.topk_mag_tree({"x": x, "w": w, "steps": steps}, density=density, **options)


def _mask_tree(x, w, steps, lam, k):
    tree = {"x": x, "w": w, "steps": steps}
    return ops.topk_mask_tree(tree, k=k, lam=lam), ops.topk_mask_tree(tree, density=0.3, lam=lam, per_leaf=True)


def _hard_trees(x, w):
    tree = {"x": x, "w": w}
    return ops.topk_mask_tree(tree, density=0.3, lam=0), ops.topk_mag_tree(tree, k=7, lam=0)


def _straight_through(x, lam):
    return ops.straight_through(ops.hard_topk_mask(x, 2), ops.topk_mask(x, 2, lam=lam))


def _by_threshold(x, w, k, lam, where):
    select = ops.topk_threshold(x, k, lam=lam, where=where)
    prefixes = ops.prefix_topk_threshold(x, 1.5, lam=lam, where=where)
    return select(x), select(w), select.entry(lam), select.ema(select, 0.5).tau, prefixes.entry(w)


def _gates(x, w):
    key, odds = jax.random.key(0), jax.nn.sigmoid(jnp.float32(x) if x.dtype.kind in "iub" else x)
    distribution = gates.hard_concrete_cdf(odds, w), gates.hard_concrete_pdf(odds, w)
    relaxed = (
        gates.binary_concrete_cdf(odds, w, temperature=0.5),
        gates.binary_concrete_pdf(odds, w, temperature=0.5),
    )
    sampled = gates.sample_gates(key, x), gates.sample_binary_concrete(key, x, temperature=0.5)
    chances = [f(x) for f in (gates.probability_one, gates.probability_open, gates.probability_zero)]
    return distribution, relaxed, sampled, chances, gates.deterministic_gates(x), gates.l0_penalty({"x": x})


def _shrunk(x, w):
    return coding.sigshrink(x, 0.5, 3.0), jax.vmap(lambda x: coding.soft_threshold_topk(x, 2))(x)


def _attention(x, w):
    return coding.sparsemax_attention(x[:, None], w[:, None], w[:, None])


def _slots(x, w, labels):
    indices = jnp.stack([labels % N, (labels + 1) % N], axis=-1)
    return ops.scatter_slots(ops.gather_slots(x[..., None], indices), indices, w[:, :2], N, batch_dims=1)


def _weighted(x, labels, w, **options):
    weights = jnp.sum(jnp.abs(w), axis=-1)
    return ops.topk_fenchel_young_loss(x, labels, 2, example_weights=weights, reduction="mean", **options)


CALLS = {
    "topk_mask": _call(ops.topk_mask, x=X, k=K, lam=LAM, where=WHERE, split=True),
    "topk_mag": _call(ops.topk_mag, x=X, k=K, lam=LAM, p=4 / 3, debias=True, split=True),
    "relaxed_topk": _call(ops.relaxed_topk, x=X, k=K, lam=LAM, phi="exp", where=WHERE, split=True),
    "relaxed_topk with p < 2": _call(ops.relaxed_topk, x=X, k=K, lam=LAM, phi="exp", p=1.5, split=True),
    "knapsack_mask": _call(ops.knapsack_mask, x=X, k=K, lam=LAM, costs=np.exp(W), caps=np.exp(-W), where=WHERE),
    "soft_topk": _call(ops.soft_topk, x=X, k=K, lam=LAM, num_slots=3, where=WHERE),
    "gather_slots scatter_slots": _call(_slots, x=X, w=W, labels=LABELS),
    "topk_threshold prefix_topk_threshold": _call(_by_threshold, x=X, w=W, k=K, lam=LAM, where=WHERE),
    "topk_plan": _call(
        ops.topk_plan, x=X, k=WHOLE, limit=np.float32(5.5), lam=np.float32(0.7), max_iter=4, by_rows=False
    ),
    "sparsemax": _call(ops.sparsemax, x=X, lam=LAM, where=WHERE),
    "hard_topk_mask": _call(ops.hard_topk_mask, x=X, k=WHOLE, split=True),
    "hard_topk_mag": _call(ops.hard_topk_mag, x=X, k=WHOLE, where=WHERE, split=True),
    "hard_topk_mask of integers": _call(ops.hard_topk_mask, x=(100 * X).astype(np.int32) + 2**24, k=WHOLE, split=True),
    "topk_mag_tree": _call(_tree, x=X, w=W, steps=LABELS, density=np.float32(0.3), lam=np.float32(0.4), by_rows=False),
    "topk_mask_tree": _call(_mask_tree, x=X, w=W, steps=LABELS, lam=np.float32(0.4), k=np.float32(9.5), by_rows=False),
    "hard trees": _call(_hard_trees, x=X, w=W, by_rows=False),
    "straight_through": _call(_straight_through, x=X, lam=LAM),
    "pav": _call(ops.topk_mask, x=X, k=K, lam=LAM, where=WHERE, solver="pav"),
    "dykstra": _call(ops.topk_mag, x=X, k=K, lam=LAM, solver=Dykstra(4, 0.0)),
    "dual": _call(ops.topk_mag, x=X, k=K, lam=LAM, solver=Dual(2, 0.0)),
    "topk_solution": _call(topk_solution, x=X, k=K, lam=LAM),
    "isotonic_regression": _call(
        isotonic_regression, s=X, w=np.abs(W), lam=LAM, phi="half_square", sample_weight=np.exp(W), lower=-LAM
    ),
    "relaxed_topk_value": _call(ops.relaxed_topk_value, x=X, k=K, lam=LAM, where=WHERE),
    "lam_of_support": _call(ops.lam_of_support, x=X, k=np.minimum(K, 2), support=np.minimum(WHOLE + 1, 3), where=WHERE),
    "topk_fenchel_young_loss": _call(
        ops.topk_fenchel_young_loss, logits=X, labels=LABELS, k=K, lam=LAM, target="smooth", where=WHERE
    ),
    "topk_fenchel_young_loss of one value per class": _call(
        ops.topk_fenchel_young_loss, logits=X, labels=1 / (1 + np.exp(-W)), k=K, lam=LAM
    ),
    "mean of topk_fenchel_young_loss": _call(_weighted, x=X, labels=LABELS, w=W, lam=LAM, by_rows=False),
    "topk_fenchel_young_mixture": _call(
        ops.topk_fenchel_young_mixture, logits=X, labels=LABELS, weights=np.float32([0.5, 0.25]), lam=LAM
    ),
    "topk_surrogate_loss": _call(ops.topk_surrogate_loss, logits=X, labels=LABELS, k=np.maximum(K, 1), lam=LAM),
    "topk_accuracy": _call(ops.topk_accuracy, logits=X, labels=LABELS, k=(1, 3), where=WHERE),
    "topk_conjugate": _call(ops.topk_conjugate, y=X, k=K),
    "k_support_norm": _call(ops.k_support_norm, y=X, k=K),
    "topk_conjugate of exp": _call(ops.topk_conjugate, y=np.abs(X), k=K, phi="exp"),
    "owl_norm": _call(ops.owl_norm, x=X, w=DECREASING),
    "project_permutahedron": _call(ops.project_permutahedron, x=X, w=W, lam=LAM),
    "soft_sort": _call(ops.soft_sort, x=X, lam=LAM),
    "soft_rank": _call(ops.soft_rank, x=X, lam=LAM),
    "soft_quantile": _call(ops.soft_quantile, x=X, q=np.float32(0.3), lam=LAM),
    "dftopk_mask": _call(baselines.dftopk_mask, x=X, k=2, lam=LAM),
    "sigmoid_topk_mask": _call(baselines.sigmoid_topk_mask, x=X, k=K, lam=LAM),
    "lapsum_topk_mask": _call(baselines.lapsum_topk_mask, x=X, k=K, lam=LAM),
    "softsort_topk_mask": _call(baselines.softsort_topk_mask, x=X, k=K, lam=LAM),
    "neuralsort_topk_mask": _call(baselines.neuralsort_topk_mask, x=X, k=2, lam=LAM),
    "entropic_ot_topk_mask": _call(baselines.entropic_ot_topk_mask, x=X, k=K, lam=LAM),
    "perturbed_topk_mask": _call(
        baselines.perturbed_topk_mask,
        x=X,
        k=WHOLE,
        lam=LAM,
        num_samples=3,
        key=jax.random.key(0),
        by_rows=False,
    ),
    "sparse_code": _call(coding.sparse_code, x=X, dictionary=DICTIONARY, lam=LAM, tol=0.0, max_iter=3),
    "ridge_code": _call(coding.ridge_code, x=X, dictionary=DICTIONARY, lam=np.float32(3)),
    "scale_free_attention": _call(coding.scale_free_attention, x=X, dictionary=DICTIONARY, tol=0.0, max_iter=3),
    "sparsemax_attention": _call(_attention, x=X, w=W),
    "curvature_bound": _call(coding.curvature_bound, dictionary=W, by_rows=False),
    "gates": _call(_gates, x=X, w=W, by_rows=False),
    "shrinkage": _call(_shrunk, x=X, w=W),
}

# What returns other floats than its entries: `lam`, residuals, bounds, norms of float32 at least.
WIDER = (
    "topk_plan",
    "topk_threshold prefix_topk_threshold",
    "topk_solution",
    "isotonic_regression",
    "lam_of_support",
    "curvature_bound",
    "gates",
)
