"""A server with as much of Google Cloud Storage's JSON API as gcsfs and tensorstore use, for one test session."""

import base64
import contextlib
import json
import re
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Server(ThreadingHTTPServer):
    """Objects of all buckets, by "BUCKET/NAME", with their generation."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.uploads: dict[str, str] = {}
        self.lock = threading.Lock()
        self.generation = 1_700_000_000_000_000

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is none of ours; a mistake here is a missing answer, which it will report."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def store(self, key: str, content: bytes, condition: str | None) -> dict[str, Any] | None:
        """The new object; None if it is not of the generation that the condition asks for."""
        with self.lock:
            if condition is not None and int(condition) != self.objects.get(key, (b"", 0))[1]:
                return None
            self.generation += 1
            self.objects[key] = (content, self.generation)
        return self.describe(key)

    def describe(self, key: str) -> dict[str, Any]:
        bucket, name = key.split("/", 1)
        content, generation = self.objects[key]
        return {
            "kind": "storage#object",
            "id": f"{key}/{generation}",
            "bucket": bucket,
            "name": name,
            "size": str(len(content)),
            "generation": str(generation),
            "metageneration": "1",
            "crc32c": base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode(),
            "updated": "2024-01-01T00:00:00.000Z",
            "timeCreated": "2024-01-01T00:00:00.000Z",
            "storageClass": "STANDARD",
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # which holds an answer's content back for 40 ms, until its headers are acknowledged
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(*self._handle("GET", self.path, self.headers, self._body()))

    def do_POST(self) -> None:
        self._answer(*self._handle("POST", self.path, self.headers, self._body()))

    def do_DELETE(self) -> None:
        self._answer(*self._handle("DELETE", self.path, self.headers, self._body()))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, content: Any = None, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _handle(self, method: str, target: str, headers: Any, body: bytes) -> tuple[Any, ...]:
        path = urlsplit(target).path
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        if path.startswith("/upload/"):
            return self._upload(re.match(r"/upload/storage/v1/b/([^/]+)/o", path)[1], query, headers, body)
        if move := re.fullmatch(r"/storage/v1/b/([^/]+)/o/([^/]+)/moveTo/o/([^/]+)", path):
            bucket, source, target = map(unquote, move.groups())
            status, *answer = self._object("GET", f"{bucket}/{source}", f"{bucket}/{target}", query, headers)
            self.server.objects.pop(f"{bucket}/{source}", None)
            return (status, answer[0]["resource"]) if status == 200 else (status, *answer)
        match = re.match(
            r"(?:/download)?/storage/v1/b/([^/]+)(/o)?(?:/([^/]+))?(?:/(?:rewriteTo|copyTo)/b/([^/]+)/o/([^/]+))?$",
            path,
        )
        if not match:
            return 404, {"error": {"code": 404, "message": f"no such address: {method} {path}"}}
        bucket, objects, name, to_bucket, to_name = (unquote(part) if part else part for part in match.groups())
        if not objects:
            return 200, {"kind": "storage#bucket", "name": bucket, "location": "US", "locationType": "multi-region"}
        if name is None:
            return self._list(bucket, query)
        return self._object(method, f"{bucket}/{name}", to_bucket and f"{to_bucket}/{to_name}", query, headers)

    def _object(self, method: str, key: str, to: str | None, query: dict[str, str], headers: Any) -> tuple[Any, ...]:
        if key not in self.server.objects:
            return 404, {
                "error": {"code": 404, "message": f"No such object: {key}", "errors": [{"reason": "notFound"}]}
            }
        content, generation = self.server.objects[key]
        if to:
            new = self.server.store(to, content, None)
            size = str(len(content))
            return 200, {"done": True, "resource": new, "totalBytesRewritten": size, "objectSize": size}
        if method == "DELETE":
            with self.server.lock:
                self.server.objects.pop(key, None)
            return (204,)
        if query.get("alt") != "media":
            return 200, self.server.describe(key)
        marks = {"x-goog-generation": str(generation), "Content-Type": "application/octet-stream"}
        if part := re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("Range") or ""):
            first = int(part[1]) if part[1] else max(0, len(content) - int(part[2]))
            last = min(int(part[2]) if part[1] and part[2] else len(content) - 1, len(content) - 1)
            marks["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            return 206, content[first : last + 1], marks
        return 200, content, marks

    def _list(self, bucket: str, query: dict[str, str]) -> tuple[Any, ...]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        names = sorted(
            key.split("/", 1)[1] for key in list(self.server.objects) if key.startswith(f"{bucket}/{prefix}")
        )
        names = [name for name in names if query.get("startOffset", "") <= name]
        prefixes = set()
        if delimiter:
            prefixes = {
                prefix + name[len(prefix) :].split(delimiter)[0] + delimiter
                for name in names
                if delimiter in name[len(prefix) :]
            }
            names = [name for name in names if delimiter not in name[len(prefix) :]]
        items = [self.server.describe(f"{bucket}/{name}") for name in names[: int(query.get("maxResults", 10**6))]]
        return 200, {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}

    def _upload(self, bucket: str, query: dict[str, str], headers: Any, body: bytes) -> tuple[Any, ...]:
        condition = query.get("ifGenerationMatch")
        if "upload_id" in query:  # the whole content: what tests write is smaller than a chunk
            key = self.server.uploads[query["upload_id"]]
            return self._stored(key, body, condition)
        if query["uploadType"] == "resumable":
            name = query.get("name") or json.loads(body)["name"]
            upload = str(len(self.server.uploads))
            self.server.uploads[upload] = f"{bucket}/{name}"
            where = f"{self.server.address}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={upload}"
            return 200, None, {"Location": where}
        return self._stored(f"{bucket}/{query['name']}", body, condition)

    def _stored(self, key: str, content: bytes, condition: str | None) -> tuple[Any, ...]:
        stored = self.server.store(key, content, condition)
        return (200, stored) if stored else (412, {"error": {"code": 412, "message": "conditionNotMet"}})


@contextlib.contextmanager
def serve() -> Iterator[Server]:
    """A running server."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def environment(server: Server) -> dict[str, str]:
    """What sends gcsfs and tensorstore to `server`, without looking for credentials."""
    return {
        "STORAGE_EMULATOR_HOST": server.address,
        "TENSORSTORE_GCS_HTTP_URL": server.address,
        "GCE_METADATA_ROOT": "127.0.0.1:1",
        "NO_GCE_CHECK": "true",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # which asks for the kind of every bucket, by another protocol
    }
