import json

import jax.numpy as jnp
import pytest

from scripts.bench import case, contestants, record
from scripts.bench.failure import LostDeviceError
from scripts.bench.oracle import Reference
from scripts.bench.sizes import Case
from scripts.bench.timing import Budget

CASE = Case(2, 20, 3)


def _contestants():
    def fails(inputs):
        raise RuntimeError("does not compile")

    (mask,) = (found for found in contestants.operators([1.0]) if found.name == "topk_mask p=2")
    return [mask, contestants.Contestant("one that fails", fails, Reference("mask", 2.0, 1.0))]


def test_who_fails_is_in_the_record_with_the_reason_and_the_others_are_timed():
    found = case.compare(CASE, _contestants(), Budget(0.01, 4, 4), lost={"one that was": "not among them"})
    status = {(row["contestant"], row["mode"]): (row["status"], row["reason"]) for row in found["results"]}
    assert status["topk_mask p=2", "forward"] == ("timed", None)
    assert status["one that fails", "forward"] == ("failed", "RuntimeError: does not compile")


def test_who_has_ended_the_device_is_left_out_the_next_time():
    found = case.compare(CASE, _contestants()[:1], Budget(0.01, 4, 4), lost={"topk_mask p=2": "an illegal address"})
    assert {(row["status"], row["reason"]) for row in found["results"]} == {("failed", "an illegal address")}


def test_a_record_keeps_what_is_measured_and_who_has_ended_the_device():
    written = []
    kept = record.Kept({}, lambda document: written.append(document | {"cases": list(document["cases"])}))

    def loses(lost, attempt):
        assert lost == {}
        raise LostDeviceError(("one", "forward"), "an illegal address")

    with pytest.raises(LostDeviceError):
        kept.case(CASE, loses)
    assert kept.missing([CASE]) == [CASE]
    kept.case(CASE, lambda lost, attempt: {"batch": 2, "n": 20, "k": 3, "results": dict(lost)})
    assert kept.missing([CASE, Case(1, 1, 1)]) == [Case(1, 1, 1)]
    assert [len(document["cases"]) for document in written] == [0, 1]
    assert kept.document["cases"][0]["results"] == {"one": "an illegal address"}


def test_a_part_is_measured_once_and_its_failure_is_recorded():
    kept, calls = record.Kept({}), []

    def part():
        calls.append(1)
        return jnp.float32(2).item()

    def fails():
        raise ValueError("no")

    for _ in range(2):
        kept.part("growth", part)
        kept.part("memory", fails)
    assert len(calls) == 1
    assert kept.document == {"growth": 2.0, "failed": {"memory": "ValueError: no"}}


def test_whom_two_processes_were_about_when_they_were_ended_is_left_out():
    on_disk = {}

    def write(document):
        on_disk.clear()
        on_disk.update(json.loads(json.dumps(document)))

    class Killed(BaseException):
        """What no process sees: its record stays as it was."""

    def measure(lost, attempt):
        for name in ("first", "second"):
            if name not in lost:
                with attempt(name):
                    if name == "second":
                        document = json.loads(json.dumps(on_disk))
                        raise Killed(document)
        return {"batch": 2, "n": 20, "k": 3, "results": dict(lost)}

    for number in (1, 2):
        with pytest.raises(Killed) as killed:
            record.Kept(json.loads(json.dumps(on_disk)), write).case(CASE, measure)
        write(killed.value.args[0])
        assert on_disk["tries"] == {str(CASE): {"second": number}}
    kept = record.Kept(json.loads(json.dumps(on_disk)), write)
    kept.case(CASE, measure)
    assert kept.document["cases"][0]["results"] == {"second": "it ended the process 2 times"}
    assert kept.document["tries"] == {}
