import jax
import pytest

from scripts.bench import timing
from scripts.bench.timing import Budget, Call, interleave

BUDGET = Budget(0.01, fewest=8, most=8)


def test_a_function_that_fails_has_no_times_and_the_others_have():
    turns = []

    def breaks():
        turns.append(1)
        if len(turns) > 3:
            raise ValueError("no more")

    def never():
        raise TypeError("not once")

    failed = {}
    times = interleave({"works": lambda: None, "breaks": breaks, "never": never}, BUDGET, failed=failed)
    assert list(times) == ["works"]
    assert times["works"].repetitions == 8
    assert failed == {"breaks": "ValueError: no more", "never": "TypeError: not once"}
    assert len(turns) == 4
    with pytest.raises(TypeError):
        interleave({"never": never}, BUDGET)


@pytest.mark.parametrize(("platform", "waits_less"), [("cpu", False), ("gpu", True)])
def test_calls_are_queued_on_accelerators_alone(monkeypatch, platform, waits_less):
    begun, waited = [], []
    call = Call(lambda: begun.append(1), waited.append)
    monkeypatch.setattr(timing, "jax", type("jax", (), {"default_backend": staticmethod(lambda: platform)}))
    interleave({"call": call}, BUDGET)
    assert (len(waited) < len(begun) / 10) == waits_less
    assert jax.default_backend() == "cpu"
