import pytest

from scripts.bench import failure
from scripts.bench.failure import LostDeviceError, caught


def test_an_error_is_recorded_in_one_line_and_what_follows_goes_on():
    failed = {}
    with caught(failed, "one"):
        raise ValueError("first line\nsecond line")
    with caught(failed, "two"):
        pass
    assert failed == {"one": "ValueError: first line"}


def test_without_a_place_to_record_it_an_error_is_one():
    with pytest.raises(ValueError, match="something"), caught(None, "one"):
        raise ValueError("something")


def test_an_interruption_is_no_failure():
    failed = {}
    with pytest.raises(KeyboardInterrupt), caught(failed, "one"):
        raise KeyboardInterrupt
    assert failed == {}


def test_after_a_lost_device_nothing_else_is_tried(monkeypatch):
    monkeypatch.setattr(failure, "_answers", lambda: False)
    failed = {}
    with pytest.raises(LostDeviceError, match="one failed, and the device with it") as lost, caught(failed, ("one", 2)):
        raise ValueError("an illegal address")
    assert (lost.value.name, lost.value.reason) == ("one", "ValueError: an illegal address")
