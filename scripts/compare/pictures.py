"""What the page shows of runs at their end: images as data URIs of PNG files, and histograms of parameters."""

import base64
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from experiments.core.record.pictures import Pictures
from experiments.core.report.results import Run

Json = dict[str, Any]

BUDGET = 1_500_000  # characters of all runs together, of the 10 MB that a page may have


def pictures(runs: Sequence[Run]) -> Json:
    """`shown`: of as many runs, in this order, as there is room for; `left_out`: how many others have some, too."""
    shown: list[Json] = []
    left_out, room = 0, BUDGET
    for run in runs:
        if not (run.pictures.images or run.pictures.histograms):
            continue
        one = {"name": run.name, **_one(run.pictures)}
        size = len(json.dumps(one, separators=(",", ":")))
        if size > room:
            left_out += 1
            continue
        room -= size
        shown.append(one)
    return {"shown": shown, "left_out": left_out}


def _one(pictures: Pictures) -> Json:
    return {
        "images": {name: [_data_uri(image) for image in images] for name, images in pictures.images.items()},
        "histograms": {
            name: {
                "low": float(f"{kept.edges[0]:.9g}"),
                "high": float(f"{kept.edges[-1]:.9g}"),
                "counts": kept.counts.tolist(),
            }
            for name, kept in pictures.histograms.items()
        },
    }


def _data_uri(image: np.ndarray) -> str:
    """Of an image [H, W, C]."""
    file = io.BytesIO()
    Image.fromarray(image if image.shape[-1] == 3 else image[..., 0]).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
