"""Downloads from a server on this machine, whole and otherwise."""

import http.client
import http.server
import threading

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.vision import download, pretrained

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


def headers(content):
    return {"Content-Length": str(len(content))}


def test_a_file_is_downloaded_once_and_damage_is_said(server, tmp_path, capsys):
    np.savez(tmp_path / "weights.npz", a=np.arange(1e5))
    content = (tmp_path / "weights.npz").read_bytes()
    server.files["/bucket/weights.npz"] = (content, headers(content))
    path = download.fetch("gs://bucket/weights.npz")
    assert path.read_bytes() == content
    assert path.is_relative_to(tmp_path / "cache" / "sparse-topk")
    assert "downloading gs://bucket/weights.npz (1 MB)" in capsys.readouterr().out
    assert download.fetch("gs://bucket/weights.npz") == path
    assert server.requests == ["/bucket/weights.npz"]
    assert capsys.readouterr().out == ""
    for damaged in (content[:-1], content[:4000] + b"x" + content[4001:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=f"weights.npz cannot be read .* \\(remove {path}, and it is downloaded"):
            pretrained.read("gs://bucket/weights.npz")


def test_what_arrives_is_checked(server):
    server.files["/bucket/weights.npz"] = (CONTENT, headers(CONTENT + b"x"))
    with pytest.raises(UsageError, match=r"OSError: .* \d+ of \d+ bytes arrived"):
        download.fetch("gs://bucket/weights.npz")
    server.files["/other/weights.npz"] = (b"of unknown size", {})
    path = download.fetch("gs://other/weights.npz")
    assert path.read_bytes() == b"of unknown size"
    assert list(path.parent.iterdir()) == [path]  # nothing is left of the first attempt


def test_what_cannot_be_had_is_said_in_a_line(server):
    with pytest.raises(UsageError, match=r"^gs://bucket/no\.npz .*HTTPError: 404 Not Found.* path of the file"):
        download.fetch("gs://bucket/no.npz")
    with pytest.raises(UsageError, match=r"^https://127\.0\.0\.1:1/x\.npz .*URLError: .*refused"):
        download.fetch("https://127.0.0.1:1/x.npz")
