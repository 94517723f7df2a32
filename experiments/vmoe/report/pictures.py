"""Which patches experts work on, drawn on the images of the first group that is evaluated."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.core.input import dataset as data_lib
from experiments.core.input.examples import InMemory
from experiments.core.record.files import write_atomically
from experiments.core.report.results import Run
from experiments.core.report.style import RED
from experiments.vmoe.report import naming

NAME = "pictures.npz"  # beside the runs: their images, of which they may have seen features alone
_SHOWN = 4  # experts of a router
_FAINT = 0.25  # of a patch that an expert does not work on
_PIXELS = 32  # along a side of an image, at least


def keep(directory: Path) -> list[Path]:
    """Writes the images that the probes of the runs below `directory` are of, if there are any and it is not done yet.

    Raises:
      UsageError: the data set is not there.
    """
    path = directory / NAME
    found = [run for run in naming.final(naming.load(directory)[0]) if run.probe]
    if not found or path.exists():
        return []
    config = found[0].config
    source = data_lib.source(config["dataset"], config["data_dir"], label=config["label"])
    buffer = io.BytesIO()
    assert isinstance(source.test, InMemory)  # as all that a probe sees
    images = source.test.arrays["image"][: config["moe"]["group_images"]]
    np.savez_compressed(buffer, allow_pickle=False, image=images)
    write_atomically(path, buffer.getvalue())
    return [path]


def read(directory: Path) -> np.ndarray | None:
    """The images [N, H, W, C] in uint8 that `keep` has written; None where it has not."""
    path = directory / NAME
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["image"]


def experts(runs: Sequence[Run], images: np.ndarray) -> Figure:
    """For the first run of every router, a few experts of its last layer, each with the patches it works on."""
    shown = {run.config["router"]["name"]: run for run in reversed(runs)}
    chosen = [run for run in runs if shown[run.config["router"]["name"]] is run]
    figure = Figure(figsize=(2.2 * _SHOWN, 2.7 * len(chosen)), layout="constrained")
    for part, run in zip(figure.subfigures(len(chosen), 1, squeeze=False)[:, 0], chosen, strict=True):
        part.suptitle(naming.router(run), fontsize=9)
        row = part.subplots(1, _SHOWN)
        block = max(run.probe, key=lambda name: int(name.removeprefix("block_")))
        works_on = patches(run.probe[block][0], len(images))
        for axes, expert in zip(row, narrowest(works_on)[:_SHOWN], strict=False):
            _draw(axes, images, works_on[..., expert])
            number = int((works_on[..., expert].sum(axis=(1, 2)) > 0).sum())
            axes.set_title(f"expert {expert}: {works_on[..., expert].sum()} in {number} images", fontsize=7)
        for axes in row:
            axes.set_axis_off()
    return figure


def patches(assigned: np.ndarray, num_images: int) -> np.ndarray:
    """Of [S, E], of the tokens of a group, those of patches: [images, side, side, E]; class tokens come first."""
    of_images = assigned.reshape(num_images, -1, assigned.shape[-1])
    side = math.isqrt(of_images.shape[1])
    return of_images[:, -side * side :].reshape(num_images, side, side, -1)


def narrowest(works_on: np.ndarray) -> np.ndarray:
    """The experts in the order of how few images, of those on which they work at all, have half of their patches."""
    by_image = -np.sort(-works_on.sum(axis=(1, 2)), axis=0)  # [images, E]
    total = by_image.sum(axis=0)
    needed = (by_image.cumsum(axis=0) < total / 2).sum(axis=0)
    return np.argsort(np.where(total > 0, needed, len(works_on)), kind="stable")


def _draw(axes: Axes, images: np.ndarray, works_on: np.ndarray) -> None:
    """A square of the images, pale where the expert does not work."""
    columns = math.isqrt(len(images) - 1) + 1
    scale = -(-_PIXELS // images.shape[1])
    enlarged = images.repeat(scale, axis=1).repeat(scale, axis=2)
    size = enlarged.shape[1]
    canvas = np.full((columns * size, columns * size, 3), 255.0)
    for number, (image, taken) in enumerate(zip(enlarged, works_on, strict=True)):
        top, left = size * (number // columns), size * (number % columns)
        patch = size // len(taken)
        strength = np.where(taken, 1.0, _FAINT).repeat(patch, axis=0).repeat(patch, axis=1)[..., None]
        canvas[top : top + size, left : left + size] = strength * image + (1 - strength) * 255.0
        for place in np.argwhere(taken):
            corner = (left + patch * place[1] - 0.5, top + patch * place[0] - 0.5)
            axes.add_patch(Rectangle(corner, patch, patch, fill=False, edgecolor=RED, linewidth=0.4))
    axes.imshow(canvas.astype(np.uint8), interpolation="none")  # an SVG has the pixels as they are
