"""A world of fake clouds, and the launcher in it."""

import contextlib
import shlex

import fsspec
import pytest

from scripts.launch import code, command
from tests.experiments import buckets
from tests.scripts.launch.fakes import World

WHOLE = code._PARTS  # of the code


@pytest.fixture(scope="session")
def bucket_server():
    with buckets.serve() as server:
        yield server


@pytest.fixture(autouse=True)
def _signals_count(signals_count):
    """For every launch."""


@pytest.fixture
def world(tmp_path, monkeypatch, bucket_server):
    """An empty world whose programs are first on PATH."""
    world = World(tmp_path / "world")
    programs = world.make()
    bucket_server.objects.clear()
    for name, value in buckets.environment(bucket_server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FAKE_WORLD", str(world.path))
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    # What workers of this world run: to pack and unpack all, each time, takes long.
    monkeypatch.setattr(code, "_PARTS", ("scripts/launch", "requirements.txt"))
    monkeypatch.setattr(code.Code, "archive", tmp_path / "code.tar.gz")
    with contextlib.suppress(ValueError):
        fsspec.filesystem("gs").clear_instance_cache()
    return world


@pytest.fixture
def launch(capfd):
    """The launcher: its exit status, and what it printed on stdout and stderr."""

    def run(*arguments, check=False):
        # The overrides that must arrive byte for byte are of fields that no config has.
        options = ["--pause_seconds=0.01", *([] if check else ["--no_check"])]
        end = arguments.index("--") if "--" in arguments else len(arguments)
        status = command.main([*arguments[:end], *options, *arguments[end:]])
        return status, *capfd.readouterr()

    return run


def commands(printed):
    """The commands of a dry run, as a shell reads them."""
    return [shlex.split(line) for line in printed.splitlines() if not line.startswith("#")]
