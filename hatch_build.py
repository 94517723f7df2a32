"""Metadata of the built package that is made rather than written: its page."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """The page of the operators, which in a checkout go by the name of their folder, under their installed name."""

    def update(self, metadata: dict) -> None:
        """Adds the page."""
        page = (Path(self.root) / "ops" / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(?<![/\w])ops(?=\.\w| import)", "sparse_topk", page)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
