"""The cache of decoded arrays never changes what is read."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from experiments.core.input import cache


@pytest.fixture(autouse=True)
def _cache_in_tmp(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "data"
    path.write_text("one")
    return path


class Maker:
    """Counts how often the arrays are made."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"x": np.arange(4, dtype=np.uint8)}


@pytest.fixture
def made(source, tmp_path):
    """A maker whose arrays are in the cache, and the file of that."""
    make = Maker()
    cache.load_or_make("set", "1.0", [source], make)
    (file,) = (tmp_path / "cache").rglob("*.npz")
    return make, file


def test_arrays_are_made_once_until_a_change(source):
    make = Maker()
    for version, content, calls in (("1.0", "one", 1), ("1.0", "one", 1), ("1.1", "one", 2), ("1.0", "another", 3)):
        if source.read_text() != content:
            source.write_text(content)
        arrays = cache.load_or_make("set", version, [source], make)
        np.testing.assert_array_equal(arrays["x"], np.arange(4))
        assert make.calls == calls


def test_cache_does_not_trust_file_times(source, made):
    make, _ = made
    times = source.stat()
    source.write_text("two")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    cache.load_or_make("set", "1.0", [source], make)
    assert make.calls == 2


def test_concurrent_loads_make_arrays_once(source):
    began, go_on = threading.Event(), threading.Event()

    class SlowMaker(Maker):
        def __call__(self):
            began.set()
            assert go_on.wait(60)
            return super().__call__()

    make = SlowMaker()
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(cache.load_or_make, "set", "1.0", [source], make) for _ in range(3)]
        assert began.wait(60)
        time.sleep(0.2)  # in which the others come as far as they can
        go_on.set()
    for one in found:
        np.testing.assert_array_equal(one.result()["x"], np.arange(4))
    assert make.calls == 1


def test_damaged_cache_is_made_again(source, made, capsys):
    make, file = made
    content = file.read_bytes()
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] * (place != 50))
        arrays = cache.load_or_make("set", "1.0", [source], make)
        np.testing.assert_array_equal(arrays.get("x", np.arange(4)), np.arange(4))
    assert make.calls > 100
    assert capsys.readouterr().err.count("ignoring the unreadable cache") == make.calls - 1
