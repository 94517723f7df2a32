"""Knapsacks, plans and permutahedra, against the oracle: values and derivatives of random problems."""

from tests.ops.problems.trying import each_of, try_problems


@each_of("knapsack_mask", "topk_plan", "soft_sort", "soft_rank", "project_permutahedron")
def test_values_and_derivatives(operator, part, parts, record_property):
    try_problems(operator, part, parts, record_property)
