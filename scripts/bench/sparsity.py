"""What sparsity buys: bytes on disk and time of inference, dense and sparse: ``python -m scripts.bench.sparsity``.

Multilayer perceptrons whose matrices share one budget, of the paper's size (784-32-32-10) and wider, with random
weights: how many there are matters, not which. Products by NumPy and, sparse, by SciPy's compressed rows (CSR), which
on CPUs is the library to use; on so small a network a dense product may well win. Writes
the section ``sparsity`` of ``<results>/<hardware>.json``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from experiments.core import console
from ops import pruning
from scripts.bench import record
from scripts.bench.timing import Budget, interleave

_MODULE = "scripts.bench.sparsity"

WIDTHS = {"784-32-32-10": (784, 32, 32, 10), "784-1024-1024-10": (784, 1024, 1024, 10)}
DENSITIES = (1.0, 0.1, 0.02, 0.01)
BATCHES = (1, 128)
Matrices = list[np.ndarray]  # [inputs, outputs]


def pruned(widths: Sequence[int], density: float) -> Matrices:
    """Random matrices of which the largest weights are left, whichever they are in."""
    keys = jax.random.split(jax.random.key(0), len(widths) - 1)
    shapes = itertools.pairwise(widths)
    params = {
        str(i): jax.random.normal(key, shape) / jnp.sqrt(shape[0])
        for i, (key, shape) in enumerate(zip(keys, shapes, strict=True))
    }
    return [np.asarray(leaf) for leaf in pruning.Pruner(density=density, lam=0.0).harden(params).values()]


def sizes(matrices: Matrices) -> dict[str, int]:
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


def inference(matrices: Sequence[Any], x: np.ndarray) -> np.ndarray:
    """Logits [outputs, B] of inputs [inputs, B], through matrices [outputs, inputs], dense or sparse."""
    for matrix in matrices[:-1]:
        x = np.maximum(matrix @ x, 0.0)
    return matrices[-1] @ x


def calls(matrices: Matrices, batch: int) -> dict[str, Callable[[], Any]]:
    """Inference in each format."""
    x = np.random.default_rng(0).normal(size=(len(matrices[0]), batch)).astype(np.float32)
    dense = [np.ascontiguousarray(matrix.T) for matrix in matrices]
    rows = [sparse.csr_array(matrix) for matrix in dense]
    return {"dense": lambda: inference(dense, x), "csr": lambda: inference(rows, x)}


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = record.parser(_MODULE, __doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="of timed calls, all together")
    options = record.parse(parser, arguments)
    environment = record.begin(_MODULE, arguments, options.results)

    networks = {(name, density): pruned(widths, density) for name, widths in WIDTHS.items() for density in DENSITIES}
    timed = {
        (name, density, batch, form): call
        for (name, density), matrices in networks.items()
        for batch in BATCHES
        for form, call in calls(matrices, batch).items()
    }
    times = interleave(timed, Budget(options.seconds, fewest=20, most=2000))
    document: dict[str, Any] = {
        "bytes": [
            {"network": name, "density": density} | sizes(matrices) for (name, density), matrices in networks.items()
        ],
        "inference": [
            {"network": name, "density": density, "batch": batch, "format": form} | time._asdict()
            for (name, density, batch, form), time in times.items()
        ],
    }
    path = record.write(options.results, "sparsity", environment, document)

    for row in document["bytes"]:
        formats = ", ".join(f"{form} {row[form]}" for form in ("dense", "csr", "bcoo", "bits"))
        print(f"{row['network']:17} {100 * row['density']:3g} %  bytes: {formats}")
    for (name, density, batch, form), time in times.items():
        over = time.median_ms / times[name, density, batch, "dense"].median_ms
        print(
            f"{name:17} {100 * density:3g} %  batch {batch:3}  {form:5} {time.median_ms:8.4f} ms  {over:6.2f} of dense"
        )
    print(f"results are in {path}")
    return 0


if __name__ == "__main__":
    console.run(main)
