"""A run for TensorBoard, beside what is kept anyway: curves, images, histograms; config and summary as text.

The events are written by clu, with TensorFlow, whose import takes eight seconds.
"""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class TensorBoard:
    """The events of a run, which are written as they come."""

    def __init__(self, directory: Path):
        """Opens a file of events in `directory`."""
        from clu import metric_writers

        self._writer = metric_writers.SummaryWriter(str(directory))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """A point of each curve."""
        self._writer.write_scalars(step, values)
        self._writer.flush()

    def config(self, lines: Sequence[str]) -> None:
        """The config, as text."""
        self._text(0, "config", lines)

    def end(
        self,
        step: int,
        summary: Mapping[str, Any],
        params: Mapping[str, np.ndarray],
        images: Mapping[str, np.ndarray],
    ) -> None:
        """The summary, as text; a histogram of each array of parameters, over all seeds; uint8 images [N, H, W, C]."""
        self._text(step, "summary", json.dumps(summary, indent=2).splitlines())
        self._writer.write_histograms(step, params)
        self._writer.write_images(step, images)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def _text(self, step: int, name: str, lines: Sequence[str]) -> None:
        # Text is Markdown, in which these are lines of code.
        self._writer.write_texts(step, {name: "\n".join(f"    {line}" for line in lines)})
        self._writer.flush()


def available() -> bool:
    """Whether TensorFlow is installed; says so if not."""
    found = importlib.util.find_spec("tensorflow") is not None
    if not found:
        print("config.tensorboard is on, but TensorFlow is not installed: metrics.jsonl only")
    return found
