import json

import pytest

from scripts.bench import failure, losses, router, steps
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


@pytest.mark.parametrize("module", [losses, router, steps])
def test_a_benchmark_whose_device_is_lost_leaves_a_record_that_says_so(monkeypatch, tmp_path, capsys, module):
    def loses(*_):
        raise LostDeviceError("one", "an illegal address")

    monkeypatch.setattr(module, "measure", loses)
    assert module.main([f"--results={tmp_path}"]) == 1
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text())[f"failed-{module.__name__.rpartition('.')[2]}"]
    assert (document["complete"], document["failed"]) == (True, {"one": "an illegal address"})
    assert "error: one failed, and the device with it" in capsys.readouterr().err
