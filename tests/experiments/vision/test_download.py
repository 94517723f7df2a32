"""Downloads from a server on this machine, whole and otherwise."""

import base64
import hashlib
import http.client
import http.server
import threading

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.vision import download, layouts

CONTENT = bytes(range(256)) * 5000


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `files`: a path to the content and the headers that belong to it."""

    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path not in self.server.files:
            self.send_error(404)
            return
        content, headers = self.server.files[self.path]
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.files, server.requests = {}, []
        monkeypatch.setattr(download, "_STORAGE", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def headers(content, **extra):
    md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    return {"Content-Length": str(len(content)), "x-goog-hash": f"crc32c=AAAAAA==,md5={md5}"} | extra


def test_a_file_is_downloaded_once_and_again_when_damaged(server, tmp_path, capsys):
    server.files["/bucket/weights.npz"] = (CONTENT, headers(CONTENT))
    path = download.fetch("gs://bucket/weights.npz")
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache" / "sparse-topk")
    assert "downloading gs://bucket/weights.npz (1 MB)" in capsys.readouterr().out
    assert download.fetch("gs://bucket/weights.npz") == path
    assert server.requests == ["/bucket/weights.npz"]
    assert capsys.readouterr().out == ""

    for damaged in (CONTENT[:-1], CONTENT[:-1] + b"x"):
        path.write_bytes(damaged)
        assert download.fetch("gs://bucket/weights.npz").read_bytes() == CONTENT
        assert "is not what was downloaded" in capsys.readouterr().err
    record = path.with_name(path.name + ".json")
    record.write_text("{}")
    download.fetch("gs://bucket/weights.npz")
    record.unlink()
    download.fetch("gs://bucket/weights.npz")
    assert len(server.requests) == 5
    assert sorted(path.parent.iterdir()) == [path, record]


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (headers(CONTENT + b"x"), r"OSError: \d+ of \d+ bytes arrived"),
        (headers(CONTENT, **{"x-goog-hash": headers(b"else")["x-goog-hash"]}), r"OSError: its MD5 is not"),
    ],
)
def test_what_arrives_is_checked(server, headers, message):
    server.files["/bucket/weights.npz"] = (CONTENT, headers)
    with pytest.raises(UsageError, match=message):
        download.fetch("gs://bucket/weights.npz")
    server.files["/other/weights.npz"] = (b"of unknown size", {})
    path = download.fetch("gs://other/weights.npz")
    assert path.read_bytes() == b"of unknown size"
    assert len(list(path.parent.iterdir())) == 2  # nothing is left of the first attempt


def test_an_interrupted_download_leaves_nothing(server, tmp_path, monkeypatch):
    server.files["/bucket/weights.npz"] = (CONTENT, headers(CONTENT))
    read, sizes = http.client.HTTPResponse.read, []

    def interrupted(response, size=None):
        sizes.append(size)
        if len(sizes) > 1:
            raise KeyboardInterrupt
        return read(response, size // 4)

    with monkeypatch.context() as patch:
        patch.setattr(http.client.HTTPResponse, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            download.fetch("gs://bucket/weights.npz")
    assert list((tmp_path / "cache" / "sparse-topk" / "pretrained").iterdir()) == []
    assert download.fetch("gs://bucket/weights.npz").read_bytes() == CONTENT


def test_what_cannot_be_had_is_said_in_a_line(server):
    with pytest.raises(UsageError, match=r"^gs://bucket/no\.npz .*HTTPError: 404 Not Found.* path of the file"):
        download.fetch("gs://bucket/no.npz")
    with pytest.raises(UsageError, match=r"^https://127\.0\.0\.1:1/x\.npz .*URLError: .*refused"):
        download.fetch("https://127.0.0.1:1/x.npz")


def test_weights_are_read_from_an_address(server, tmp_path):
    arrays = {"cls": np.ones((1, 1, 2)), "pos_embedding": np.ones((1, 4, 2))}
    np.savez(tmp_path / "weights.npz", **arrays)
    content = (tmp_path / "weights.npz").read_bytes()
    server.files["/bucket/weights.npz"] = (content, headers(content))
    read, layout = layouts.read("gs://bucket/weights.npz")
    assert (layout, sorted(read)) == ("big_vision", ["cls", "pos_embedding"])
