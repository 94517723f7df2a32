import jax
import pytest

from scripts.bench import timing
from scripts.bench.timing import Budget, Call, Contest

BUDGET = Budget(0.01, fewest=8, most=8)


def test_failing_functions_are_not_timed():
    turns = []

    def breaks():
        turns.append(1)
        if len(turns) > 3:
            raise ValueError("no more\nand more")

    def never():
        raise TypeError("not once")

    contest = Contest({"lost": "it ended the device"})
    times = contest.time({"works": lambda: None, "breaks": breaks, "never": never, "lost": never}, BUDGET)
    assert list(times) == ["works"]
    assert times["works"].repetitions == 8
    reasons = {"lost": "it ended the device", "breaks": "ValueError: no more", "never": "TypeError: not once"}
    assert contest.failed == reasons
    assert len(turns) == 4


def test_device_loss_ends_the_contest(monkeypatch):
    monkeypatch.setattr(timing, "_device_answers", lambda: False)
    told = []
    with pytest.raises(ZeroDivisionError):
        Contest(tell=told.append).attempt("one", lambda: 1 // 0)
    assert told == ["one"]


@pytest.mark.parametrize(("platform", "waits_less"), [("cpu", False), ("gpu", True)])
def test_calls_queue_only_on_accelerators(monkeypatch, platform, waits_less):
    begun, waited = [], []
    call = Call(lambda: begun.append(1), waited.append)
    monkeypatch.setattr(timing, "jax", type("jax", (), {"default_backend": staticmethod(lambda: platform)}))
    Contest().time({"call": call}, BUDGET)
    assert (len(waited) < len(begun) / 10) == waits_less
    assert jax.default_backend() == "cpu"
