"""Networks that are exported are those that were evaluated: by the recipe of the documentation, to the last image."""

import numpy as np
import pytest

from experiments.core.record import metrics
from experiments.core.training import train
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments.mnist_pruning.test_networks import small_transformer
from tests.experiments.support import loaded, small_config

# Every method is exported by the same lines: of those with a state, or with other weights in training, one of each.
METHODS = ("dense", "hard_concrete", "str")
OTHERS = {
    "rows": lambda: small_config("annealed", seeds=(1,), epochs=1, budget="row"),
    "the whole network": lambda: small_config("movement", seeds=(1,), epochs=1, budget="network"),
    "a transformer": lambda: small_transformer("annealed", seeds=(1,)),
}


@pytest.mark.parametrize("case", [*METHODS, *OTHERS])
def test_what_is_exported_has_the_errors_of_the_last_row(tmp_path, case):
    config = small_config(case, seeds=(1,), epochs=1) if case in METHODS else OTHERS[case]()
    config.export_params = True
    train.run(RECIPE, config, tmp_path)
    made, row = loaded("mnist_pruning", tmp_path), metrics.read(tmp_path / "metrics.jsonl")[-1]
    network, test = made["network"], made["data"].evaluation
    for name, metric in {"network": "test_error", "hardened": "hardened_error"}.items():
        logits = network.logits(made["params"][name], network.prepare(test["image"]))
        assert 100 * (np.argmax(logits, axis=1) != test["label"]).mean() == pytest.approx(row[metric][0], rel=1e-6)
        if name == "network":
            np.testing.assert_array_equal(logits, made["logits"])
