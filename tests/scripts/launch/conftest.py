"""The launcher in a cloud without machines."""

import contextlib
import shlex

import fsspec
import pytest

from scripts.launch import code, command, process, tpu
from tests.experiments import buckets
from tests.scripts.launch.fakes import Cloud


@pytest.fixture(scope="session")
def bucket_server():
    with buckets.serve() as server:
        yield server


@pytest.fixture(autouse=True)
def _signals_count(signals_count):
    """For every launch."""


@pytest.fixture
def cloud(tmp_path, monkeypatch, bucket_server):
    """An empty cloud, whose workdirs are in the bucket gs://bucket."""
    cloud = Cloud()
    bucket_server.objects.clear()
    for name, value in buckets.environment(bucket_server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "_begin", cloud.begin)
    monkeypatch.setattr(tpu, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(code, "_PARTS", ("scripts/launch",))  # to pack all takes long
    monkeypatch.setattr(code.Code, "archive", tmp_path / "code.tar.gz")
    monkeypatch.setattr("scripts.launch.training.LOGS", tmp_path / "logs")
    with contextlib.suppress(ValueError):
        fsspec.filesystem("gs").clear_instance_cache()
    return cloud


@pytest.fixture
def launch(capfd):
    """The launcher: its exit status, and what it printed on stdout and stderr."""

    def run(*arguments, check=False):
        # The overrides that must arrive byte for byte are of fields that no config has.
        options = ["--pause_seconds=0.01", *([] if check else ["--no_check"])]
        status = command.main([*arguments[:2], *options, *arguments[2:]])
        return status, *capfd.readouterr()

    return run


def commands(printed):
    """The commands of a dry run, as a shell reads them."""
    return [shlex.split(line) for line in printed.splitlines() if not line.startswith("#")]
