"""Values, sums and losses, against the oracle: values and derivatives of random problems."""

from tests.ops.problems.trying import each_of, try_problems


@each_of("relaxed_topk_value", "topk_fenchel_young_loss", "topk_sum")
def test_values_and_derivatives(operator, part, parts, record_property):
    try_problems(operator, part, parts, record_property)
