"""The devices that TPU's compiler makes of a type, where the package with it is installed."""

import subprocess
import sys

import pytest

from scripts.aot import compiler

_SAY = """
from scripts.aot import compiler, hardware
slice_ = hardware.parse({type!r})
compiler.prepare(slice_)
print(len(compiler.devices(slice_)), slice_.count)
"""


@pytest.mark.skipif(not compiler.available("tpu"), reason="libtpu is not installed: make check-accelerators")
@pytest.mark.parametrize("type_", ["v4-32", "v5litepod-16", "2xv5litepod-16", "v5p-16", "v6e-64", "tpu7x-8"])
def test_as_many_as_the_type_says(type_):
    # A process each: what the compiler is told of the type it keeps.
    said = subprocess.run(
        [sys.executable, "-c", _SAY.format(type=type_)], check=True, capture_output=True, text=True
    ).stdout.split()
    assert said[0] == said[1]
