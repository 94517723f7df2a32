"""Every public operator is compiled, with its gradient."""

import warnings

import jax
import pytest

import ops
from experiments.core.record import chips
from scripts.compile import compiled, operators

V5E = chips.parse("v5e")


def test_every_public_operator_is_there():
    public = {name for name in ops.__all__ if callable(getattr(ops, name)) and name[0].islower()}
    assert {name.split()[0] for name in operators.CALLS} == public | {"lax.top_k"}
    assert {name for name, _ in operators.cases()} == set(operators.CALLS)


@pytest.mark.parametrize("name", ["topk_mask", "topk_accuracy", "topk_fenchel_young_mixture"])
def test_a_program_has_the_gradient(name):
    lowered = operators.lower(name, (8, 16, 2), jax.devices()[0])
    assert [leaf.shape for leaf in jax.tree.leaves(lowered.out_info)] == [(), (8, 16)]


def test_a_failure_and_a_warning_are_results(monkeypatch):
    def outcome(lowered, slice_):
        warnings.warn("the loop is compiled instead", stacklevel=1)
        raise compiled.Refused("CompileTimeScopedVmemOom")

    monkeypatch.setattr(compiled, "outcome", outcome)
    found = operators.compile_("owl_norm", (8, 16, 2), V5E, jax.devices()[0])
    assert found == {
        "program": "owl_norm (8, 16)",
        "error": "Refused: CompileTimeScopedVmemOom",
        "warnings": ["the loop is compiled instead"],
    }
