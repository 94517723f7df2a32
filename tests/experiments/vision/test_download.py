"""Downloads from a stand-in for the web, whole and otherwise."""

import email.message
import io
import urllib.error

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.vision import download, pretrained


@pytest.fixture
def web(tmp_path, monkeypatch):
    """Files by address: content, and how long it is said to be; and the addresses that were asked for."""
    files, asked = {}, []

    def urlopen(address, timeout):
        asked.append(address)
        if address not in files:
            raise urllib.error.HTTPError(address, 404, "Not Found", email.message.Message(), io.BytesIO())
        content, length = files[address]
        response = io.BytesIO(content)
        response.headers = {"Content-Length": length}
        return response

    monkeypatch.setattr(download.urllib.request, "urlopen", urlopen)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return files, asked


ADDRESS = "https://storage.googleapis.com/bucket/weights.npz"


def test_files_are_downloaded_only_once(web, tmp_path, capsys):
    files, asked = web
    np.savez(tmp_path / "weights.npz", a=np.arange(1e5))
    content = (tmp_path / "weights.npz").read_bytes()
    files[ADDRESS] = content, str(len(content))
    path = download.fetch("gs://bucket/weights.npz")
    assert path.read_bytes() == content
    assert path.is_relative_to(tmp_path / "cache" / "sparse-topk")
    assert "downloading gs://bucket/weights.npz (1 MB)" in capsys.readouterr().out
    assert download.fetch("gs://bucket/weights.npz") == path
    assert asked == [ADDRESS]
    for damaged in (content[:-1], content[:4000] + b"x" + content[4001:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=f"weights.npz cannot be read .* \\(remove {path}, and it is downloaded"):
            pretrained.read("gs://bucket/weights.npz")


def test_failed_downloads_are_reported(web):
    files, _ = web
    files[ADDRESS] = bytes(1000), "1001"
    with pytest.raises(UsageError, match=r"OSError: .* 1000 of 1001 bytes arrived"):
        download.fetch("gs://bucket/weights.npz")
    files[ADDRESS] = b"of unknown size", None
    path = download.fetch("gs://bucket/weights.npz")
    assert path.read_bytes() == b"of unknown size"
    assert list(path.parent.iterdir()) == [path]  # nothing is left of the first attempt
    with pytest.raises(UsageError, match=r"^gs://bucket/no\.npz .*HTTPError: 404 Not Found.* path of the file"):
        download.fetch("gs://bucket/no.npz")
