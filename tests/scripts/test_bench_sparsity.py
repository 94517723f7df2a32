"""What sparsity buys: bytes as the formats have them, and the same logits from each."""

import json

import numpy as np
import pytest
from jax.experimental.sparse import BCOO
from scipy import sparse

from scripts.bench import sparsity

MATRICES = sparsity.pruned((50, 20, 10), 0.1)


def test_as_many_weights_are_kept_as_the_density_says_across_all_matrices():
    assert sum(int(np.count_nonzero(matrix)) for matrix in MATRICES) == int(0.1 * (50 * 20 + 20 * 10))


def test_bytes_are_those_of_the_formats():
    found = sparsity.sizes(MATRICES)
    assert found["dense"] == sum(matrix.nbytes for matrix in MATRICES)
    rows = [sparse.csr_array(matrix.T) for matrix in MATRICES]
    assert found["csr"] == sum(m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in rows)
    coordinates = [BCOO.fromdense(matrix) for matrix in MATRICES]
    assert found["bcoo"] == sum(m.data.nbytes + m.indices.nbytes for m in coordinates)
    bits = sum(np.packbits(matrix != 0).nbytes for matrix in MATRICES)
    assert found["bits"] == bits + sum(matrix[matrix != 0].nbytes for matrix in MATRICES)


@pytest.mark.parametrize("batch", [1, 7])
def test_dense_and_sparse_products_agree(batch):
    logits = {form: call() for form, call in sparsity.calls(MATRICES, batch).items()}
    assert logits["dense"].shape == (10, batch)
    np.testing.assert_allclose(logits["csr"], logits["dense"], atol=1e-5)


def test_the_command_writes_a_row_for_each_size_density_batch_and_format(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sparsity, "WIDTHS", {"20-10": (20, 10)})
    assert sparsity.main([f"--results={tmp_path}", "--seconds=0.01"]) == 0
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())["sparsity"]
    assert (len(found["bytes"]), len(found["inference"])) == (4, 16)
    assert "of dense" in capsys.readouterr().out
