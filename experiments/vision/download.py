"""Downloads files from the web, each once."""

import errno
import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from experiments.core.errors import UsageError
from experiments.core.input import cache
from experiments.core.record.files import replacing

SCHEMES = ("gs://", "https://")
_STORAGE = "https://storage.googleapis.com"  # serves public files of gs:// by https
_TIMEOUT = 60  # seconds without an answer


def fetch(url: str) -> Path:
    """Returns the path of a local copy of `gs://BUCKET/FILE` (in a public bucket) or `https://...`.

    The file is downloaded into the cache directory unless it is there; an interrupted download leaves nothing. Weights
    are `.npz` files, which have a checksum for each array, so reading them detects damage.

    Raises:
      UsageError: the file could not be obtained.
    """
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    path = cache.directory() / "pretrained" / f"{digest}-{url.rpartition('/')[2] or 'file'}"
    if path.exists():
        return path
    address = f"{_STORAGE}/{url.removeprefix('gs://')}" if url.startswith("gs://") else url
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response, replacing(path) as file:
            announced = response.headers["Content-Length"]
            megabytes = f" ({int(announced) / 1e6:.0f} MB)" if announced else ""
            print(f"downloading {url}{megabytes} to {path}", flush=True)
            shutil.copyfileobj(response, file)
            if announced and file.tell() != int(announced):
                raise OSError(errno.EIO, f"{file.tell()} of {announced} bytes arrived")
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
