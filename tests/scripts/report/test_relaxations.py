"""Tables of relaxations: why a mask has zeros, and that none is left out."""

import pytest

from scripts.relaxations import methods
from scripts.report import RESULTS, relaxations


@pytest.mark.parametrize(
    ("name", "in_float32", "in_float64", "why"),
    [
        ("relaxed, p = 2", 33.8, 33.8, "by construction"),
        ("NeuralSort", 100.1, 250.0, "by underflow"),
        ("sorting network", 399.8, 400.0, "by underflow"),
        ("perturbed, 100 samples", 40.8, 41.9, "by chance"),
        ("LapSum", 400.0, 400.0, "none"),
    ],
)
def test_zeros_have_a_reason(name, in_float32, in_float64, why):
    assert relaxations._zeros(name, in_float32, in_float64, 400) == why


def test_no_mask_is_left_out():
    assert relaxations.RELAXATIONS.keys() == methods.RELAXATIONS.keys()
    made = relaxations.blocks(RESULTS)
    for block in ("relaxed masks", "relaxed gradients", "narrow gradients", "relaxed times", "relaxed neighbours"):
        shown = {line.split(" | ")[0].removeprefix("| ") for line in made[block]}
        names = set(map(relaxations._alone, relaxations.RELAXATIONS))
        assert names <= set(map(relaxations._alone, shown)), block
