"""Masks and magnitudes, relaxed and hard, against the oracle: values and derivatives of random problems."""

from tests.ops.problems.trying import each_of, try_problems


@each_of("topk_mask", "topk_mag", "relaxed_topk", "soft_topk", "sparsemax", "hard_topk_mask", "hard_topk_mag")
def test_values_and_derivatives(operator, part, parts, record_property):
    try_problems(operator, part, parts, record_property)
