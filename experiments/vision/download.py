"""Files from the web, downloaded once and checked whenever they are used again."""

import base64
import hashlib
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from experiments.core.errors import UsageError
from experiments.core.input import cache
from experiments.core.record.files import write_json

SCHEMES = ("gs://", "https://")
_STORAGE = "https://storage.googleapis.com"  # serves what is public in gs://, by https
_BLOCK = 1 << 20
_TIMEOUT = 60  # seconds without an answer


def fetch(url: str) -> Path:
    """The local copy of a file at `gs://BUCKET/FILE` (of a public bucket) or `https://...`.

    It is downloaded into the cache directory unless it is there already with the size and the
    SHA-256 it had when it arrived, which are kept beside it. Upon arrival its size, and for a file
    of Google Cloud Storage its MD5, are those that the server has announced.

    Raises:
      UsageError: it could not be obtained.
    """
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    path = cache.directory() / "pretrained" / f"{digest}-{url.rpartition('/')[2] or 'file'}"
    record = path.with_name(path.name + ".json")
    if path.exists() and record.exists():
        if _matches(path, record):
            return path
        print(f"{path} is not what was downloaded: it is downloaded again", file=sys.stderr)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file first: without its record it does not count.
        write_json(record, {"url": url} | _download(url, path))
    except (OSError, http.client.HTTPException) as error:
        reason: object = error
        if isinstance(error, urllib.error.HTTPError):
            reason = f"{error.code} {error.reason}"
            error.close()  # it holds the connection
        raise UsageError(
            f"{url} could not be downloaded to {path.parent} ({type(error).__name__}: {reason}): if it can be "
            "had otherwise (`gcloud storage cp` for a bucket that is not public), give the path of the file instead"
        ) from error
    return path


def _matches(path: Path, record: Path) -> bool:
    try:
        expected = json.loads(record.read_text())
        if path.stat().st_size != expected["size"]:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == expected["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _download(url: str, path: Path) -> dict[str, Any]:
    """Writes `path`, wholly or not at all, and returns its size and SHA-256."""
    address = f"{_STORAGE}/{url.removeprefix('gs://')}" if url.startswith("gs://") else url
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response, temporary.open("wb") as file:
            announced = response.headers["Content-Length"]
            megabytes = f" ({int(announced) / 1e6:.0f} MB)" if announced else ""
            print(f"downloading {url}{megabytes} to {path}", flush=True)
            while block := response.read(_BLOCK):
                size += len(block)
                sha256.update(block)
                md5.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        if announced and size != int(announced):
            raise OSError(f"{size} of {announced} bytes arrived")
        if (expected := _announced_md5(response.headers)) and expected != md5.digest():
            raise OSError("its MD5 is not the one that the server announced")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return {"size": size, "sha256": sha256.hexdigest()}


def _announced_md5(headers: http.client.HTTPMessage) -> bytes | None:
    """Google Cloud Storage sends `x-goog-hash: crc32c=...` and `x-goog-hash: md5=...`, or both in one."""
    for header in headers.get_all("x-goog-hash", []):
        for part in header.split(","):
            name, _, value = part.strip().partition("=")
            if name == "md5":
                return base64.b64decode(value)
    return None
