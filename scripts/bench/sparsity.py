"""The section ``sparsity``: what sparsity buys, in bytes on disk and time of inference.

Multilayer perceptrons whose matrices share one budget, of the paper's size (784-32-32-10) and wider, with random
weights: how many there are matters, not which. Products by NumPy and, sparse, by SciPy's compressed rows (CSR), which
on CPUs is the library to use; on so small a network a dense product may well win.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from ops import pruning
from scripts.bench.process import Case, Found, Group
from scripts.bench.timing import Budget, Contest

_NETWORKS = {"784-32-32-10": [784, 32, 32, 10], "784-1024-1024-10": [784, 1024, 1024, 10]}
_DENSITIES = (1.0, 0.1, 0.02, 0.01)
_BATCHES = (1, 128)
Matrices = list[np.ndarray]  # [inputs, outputs]


def group(scale: str) -> Group:
    """One case: all networks, densities, batches and formats take turns."""
    networks = {"20-10": [20, 10]} if scale == "small" else _NETWORKS
    seconds = 0.2 if scale == "small" else 40.0
    return Group({"seconds": seconds}, [Case("inference", functools.partial(measure, networks, seconds))])


def measure(networks: Mapping[str, Sequence[int]], seconds: float, contest: Contest) -> Found:
    """Bytes of every network in each format, and times of its inference."""
    sizes, timed, rows = [], {}, {}
    for (name, widths), density in itertools.product(networks.items(), _DENSITIES):
        matrices, row = pruned(widths, density), {"network": name, "density": density}
        sizes.append(row | bytes_of(matrices))
        for batch in _BATCHES:
            for form, call in calls(matrices, batch).items():
                key = f"{name}, density {density:g}, batch {batch}, {form}"
                timed[key], rows[key] = call, row | {"batch": batch, "format": form}
    times = contest.time(timed, Budget(seconds, fewest=20, most=2000))
    inference = [rows[key] | time._asdict() for key, time in times.items()]
    return {"bytes": sizes, "inference": inference, "failed": contest.failed}


def pruned(widths: Sequence[int], density: float) -> Matrices:
    """Random matrices of which the largest weights are left, whichever they are in."""
    keys = jax.random.split(jax.random.key(0), len(widths) - 1)
    params = {
        str(i): jax.random.normal(key, shape) / jnp.sqrt(shape[0])
        for i, (key, shape) in enumerate(zip(keys, itertools.pairwise(widths), strict=True))
    }
    return [np.asarray(leaf) for leaf in pruning.Pruner(density=density, lam=0.0).harden(params).values()]


def bytes_of(matrices: Matrices) -> dict[str, int]:
    """Bytes of the matrices in each format, in float32.

    ``csr`` has an index of 4 bytes for each weight and one for each unit, ``bcoo`` (of JAX) two for each weight, and
    ``bits`` a bit for each weight, kept or not.
    """
    kept = sum(int(np.count_nonzero(matrix)) for matrix in matrices)
    entries, units = sum(matrix.size for matrix in matrices), sum(matrix.shape[1] for matrix in matrices)
    return {
        "dense": 4 * entries,
        "csr": 8 * kept + 4 * (units + len(matrices)),
        "bcoo": 12 * kept,
        "bits": 4 * kept + sum(-(-matrix.size // 8) for matrix in matrices),
    }


def calls(matrices: Matrices, batch: int) -> dict[str, Callable[[], Any]]:
    """Inference in each format: logits [outputs, B] of inputs [inputs, B]."""
    x = np.random.default_rng(0).normal(size=(len(matrices[0]), batch)).astype(np.float32)
    dense = [np.ascontiguousarray(matrix.T) for matrix in matrices]
    rows = [sparse.csr_array(matrix) for matrix in dense]
    return {"dense": lambda: _inference(dense, x), "csr": lambda: _inference(rows, x)}


def _inference(matrices: Sequence[Any], x: np.ndarray) -> np.ndarray:
    for matrix in matrices[:-1]:
        x = np.maximum(matrix @ x, 0.0)
    return matrices[-1] @ x
