"""The operators of pytrees, and groups, against the oracle: values and derivatives of random problems."""

from tests.ops.problems.trying import each_of, try_problems


@each_of("topk_mask_tree", "topk_mag_tree", "hard_topk_mask_tree", "hard_topk_mag_tree")
def test_values_and_derivatives(operator, part, parts, record_property):
    try_problems(operator, part, parts, record_property)
