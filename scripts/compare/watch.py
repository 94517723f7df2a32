"""A page that follows runs while they go on, from a server that this machine alone can reach."""

import hashlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scripts.compare import remote
from scripts.compare.comparison import comparison
from scripts.compare.groups import group
from scripts.compare.workdirs import find

_HOST = "127.0.0.1"
_PATIENCE = 2.0  # seconds between two looks at files; listing a bucket costs more
_PATIENCE_REMOTE = 30.0


class Site(ThreadingHTTPServer):
    """Serves the page at `/`, and at `/version` what tells it from an older one."""

    def __init__(self, port: int):
        """Listens at once; port 0 is any that is free.

        Raises:
          OSError: the port is taken.
        """
        super().__init__((_HOST, port), _Handler)
        self.page = self.version = b""

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://{_HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        # A page of another site whose name leads to this machine is not answered.
        known = self.headers.get("Host") in [f"{name}:{self.server.server_port}" for name in (_HOST, "localhost")]
        found = {"/": ("text/html", self.server.page), "/version": ("text/plain", self.server.version)}.get(self.path)
        if not known or found is None:
            self.send_error(HTTPStatus.NOT_FOUND if known else HTTPStatus.FORBIDDEN)
            return
        kind, content = found
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page asks every other second."""


def follow(places: Sequence[str], site: Site) -> int:
    """Serves the page of the places until Ctrl-C, and makes it anew when files of runs have changed; returns 0."""
    with _serving(site):
        try:
            for _ in _changes(places):
                first = not site.version
                site.page, site.version = _made(places)
                if first:
                    print(f"{site.url} until Ctrl-C", flush=True)
        except KeyboardInterrupt:
            print("\nended", file=sys.stderr)
    return 0


@contextmanager
def _serving(site: Site) -> Iterator[None]:
    with site:
        thread = threading.Thread(target=site.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            site.shutdown()
            thread.join()


def _changes(places: Sequence[str]) -> Iterator[None]:
    """At once, and then whenever files of runs are not what they were; it takes no more than half of the time."""
    patience = _PATIENCE_REMOTE if any("://" in place for place in places) else _PATIENCE
    before = None
    while True:
        start = time.monotonic()
        if (now := [remote.stamps(place) for place in places]) != before:
            before = now
            yield
        time.sleep(max(patience, time.monotonic() - start))


def _made(places: Sequence[str]) -> tuple[bytes, bytes]:
    """The page as it is now, and its version."""
    found = find(places)
    groups = group(found)
    version = hashlib.sha256(comparison(found, groups).encode()).hexdigest()
    made = time.strftime("%H:%M:%S")
    print(f"{made}: {len(found.runs)} runs", file=sys.stderr, flush=True)
    page = comparison(found, groups, followed={"version": version, "made": made})
    return page.encode(), version.encode()
