"""The devices that TPU's compiler makes of a type, where the package with it is installed."""

import subprocess
import sys

import pytest

from scripts.compile import compiler

_SAY = """
from experiments.core.record import chips
from scripts.compile import compiler
slice_ = chips.parse({type!r})
compiler.prepare(slice_)
found = compiler.devices(slice_)
print(len(found), slice_.count, chips.of_kind(found[0].device_kind) is slice_.chip)
"""


@pytest.mark.skipif(not compiler.available("tpu"), reason="libtpu is not installed: make check-accelerators")
@pytest.mark.parametrize("type_", ["v4-32", "v5litepod-16", "2xv5litepod-16", "v5p-16", "v6e-64", "tpu7x-8"])
def test_devices_match_the_slice_type(type_):
    # A process each: what the compiler is told of the type it keeps.
    said = subprocess.run(
        [sys.executable, "-c", _SAY.format(type=type_)], check=True, capture_output=True, text=True
    ).stdout.split()
    assert said[0] == said[1]
    assert said[2] == "True"


def test_the_python_that_has_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "ROOT", tmp_path)
    monkeypatch.setattr(compiler, "available", lambda platform: False)
    assert compiler.other_python("tpu") is None  # no such environment
    (tmp_path / ".venv-tpu").mkdir()
    assert compiler.other_python("tpu") == tmp_path / ".venv-tpu" / "bin" / "python"
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv-tpu"))
    assert compiler.other_python("tpu") is None  # this is it, and lacks the compiler
    monkeypatch.setattr(compiler, "available", lambda platform: True)
    assert compiler.other_python("cuda") is None
