"""The lines of the table of the fine-tuning experiment, in Markdown, from its numbers."""

from typing import Any

from etils import epy

from experiments.core.report import tables
from experiments.core.report.markdown import grid, mean, plus_minus

with epy.lazy_imports():  # --help does without it
    from experiments.vision import efficientnet

Numbers = dict[str, Any]

SHOWN_K = (1, 3, 5, 10)
PAIRED_K = (1, 3, 5)

_PAPER_STEPS = (
    "The paper's step times on 8 TPUs, ViT-B/16 at 384 pixels: 9.5 s (cross-entropy), 9.7 s (p = 2), 10 s (p = 4/3);",
    "its accuracies it shows in a figure only.",
)

_WHOLE = (
    "A stand-in for ViT-B/16 with ImageNet-21k weights, which could not be obtained: all of EfficientNet-Lite0 from "
    "ImageNet-1k weights, with a new head."
)


def all_of(numbers: Numbers) -> list[str]:
    """Of test, then of validation."""
    return [*of_test(numbers), *_of_validation(numbers)]


def _of_validation(numbers: Numbers) -> list[str]:
    if not numbers["sweep"]:
        return []
    header = ["loss", "setting", *(f"top-{k}" for k in SHOWN_K), "mean of top-1 to 10", "train loss", "diverged", ""]
    groups: dict[str, list[Numbers]] = {}
    for row in numbers["sweep"]:
        groups.setdefault(_title(row, ""), []).append(row)
    lines = []
    for title, rows in groups.items():
        lines += [f"### Validation, {title}", "", *grid(header, map(_sweep_cells, rows)), ""]
    lines += ["Chosen for each loss: the setting with the largest mean of the top-1 to top-10 accuracies.", ""]
    if "at_an_edge" in numbers:
        edges = ", ".join(f"`{name}`" for name in numbers["at_an_edge"])
        found = f"At an edge of what was tried: {edges}." if edges else "None is at an edge of what was tried."
        lines += [found, ""]
    return lines


def of_test(numbers: Numbers) -> list[str]:
    """Those of the tables of test."""
    blocks = {}
    if "final_at_paper_rates" in numbers:
        blocks[", at the paper's learning rates"] = numbers["final_at_paper_rates"]
    blocks[", each loss at its own" if blocks else ""] = numbers["final"]
    shown = [(_title(rows[0], which), rows) for which, rows in blocks.items() if rows]
    shown += [(_title(rows[0], ""), rows) for rows in numbers.get("final_in_other_circumstances", [])]
    if not shown:
        return []
    header = ["loss", "setting", *(f"top-{k}" for k in SHOWN_K), *(f"top-{k} minus cross-entropy" for k in PAIRED_K)]
    header += ["mean of top-1 to 10", "s per step and seed", "seeds", "diverged"]
    stand_in = [_frozen(numbers["features"])] if "features" in numbers else []
    stand_in += [_WHOLE] if "whole_network" in numbers else []
    stand_in += map(_stand_in, numbers["pretraining"])
    lines = []
    for title, rows in shown:
        lines += [f"### Test, {title}", ""]
        lines += [*stand_in, ""] if numbers["stand_in"] and rows is shown[0][1] else []
        lines += [*grid(header, map(_final_cells, rows)), ""]
    both = any(_over_images(row) for _, rows in shown for row in rows)
    untimed = any(row["seconds_per_step_and_seed"] is None for _, rows in shown for row in rows)
    lines += [
        "Mean ± half width of the 95 % t-interval over seeds; differences are paired by seed"
        + (", and after the stroke is the half width over test images, paired by image." if both else "."),
        *(["Times of runs on other processors than cross-entropy's are left out."] if untimed else []),
        *_PAPER_STEPS,
        "",
    ]
    return lines


def _title(row: Numbers, which: str) -> str:
    images = f" on {row['images_per_class']} images of each class" if row.get("images_per_class") else ""
    return f"{row['dataset']}: top-k accuracy after {row['steps']} steps{images}{which}, %"


def _over_images(row: Numbers) -> bool:
    return any(value and "interval95_over_images" in value for value in row["minus_cross_entropy"].values())


def _frozen(features: Numbers) -> str:
    network = f"EfficientNet-Lite0 (ImageNet-1k weights, {features['size']} pixels)"
    trained = f"a linear head on the features of {network}, which is not trained itself"
    if features["layer"] == efficientnet.BEFORE_LAST_BLOCK:
        trained = f"the last block of {network} and a linear head; what comes before them is not trained"
    return (
        f"A stand-in for ViT-B/16 with ImageNet-21k weights, which could not be obtained: {trained}. Seeds differ in "
        "the order of the images alone."
    )


def _stand_in(row: Numbers) -> str:
    model = row["model"]
    patch = model["variant"].partition("/")[2]
    return (
        f"A stand-in for ViT-B/16 with ImageNet-21k weights, which could not be obtained: {model['depth']} blocks of "
        f"width {model['width']}, patches of {patch} pixels, trained on the coarse labels of {row['dataset']} for "
        f"{row['epochs']:.3g} epochs ({plus_minus(row['accuracy'])} % of them right on validation)."
    )


def _final_cells(row: Numbers) -> list[str]:
    shown = [plus_minus(row["accuracy"].get(str(k))) for k in SHOWN_K]
    paired = [paired_cell(row["minus_cross_entropy"].get(str(k))) for k in PAIRED_K]
    return [
        row["loss"],
        row["setting"],
        *shown,
        *paired,
        plus_minus(row["mean_topk_accuracy"]),
        "-" if (seconds := row["seconds_per_step_and_seed"]) is None else f"{seconds:.2g}",
        *tables.outcome(row),
    ]


def paired_cell(value: Numbers | None) -> str:
    """`+0.20 ± 0.05 / 0.31`: a difference, its interval over seeds, and if there is one, that over images."""
    text, by_image = plus_minus(value, signed=True), (value or {}).get("interval95_over_images")
    return text if by_image is None else f"{text} / {by_image:.2f}"


def _sweep_cells(row: Numbers) -> list[str]:
    return [
        row["loss"],
        row["setting"],
        *(plus_minus(row["accuracy"].get(str(k))) for k in SHOWN_K),
        mean(row["mean_topk_accuracy"], scale=1.0),
        mean(row["train_loss"], scale=1.0),
        *tables.outcome_of_candidate(row),
    ]
