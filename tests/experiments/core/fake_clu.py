"""In the place of clu, whose import of TensorFlow takes seconds."""

import sys
import types

import pytest


class SummaryWriter:
    """Keeps what it is told."""

    def __init__(self, directory):
        self.directory, self.written = directory, []

    def __getattr__(self, name):
        return lambda *arguments: self.written.append((name, *arguments))


def replace_clu(patch: pytest.MonkeyPatch) -> list[SummaryWriter]:
    """Has writers of events made here; returns those that will be."""
    pytest.importorskip("tensorboard", reason="pip install --group data")
    writers: list[SummaryWriter] = []

    def writer(directory):
        writers.append(SummaryWriter(directory))
        return writers[-1]

    clu = types.SimpleNamespace(metric_writers=types.SimpleNamespace(SummaryWriter=writer))
    patch.setitem(sys.modules, "clu", clu)
    return writers
