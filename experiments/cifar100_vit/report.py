"""The tables, figures and findings of the fine-tuning experiment: `python -m experiments.cifar100_vit.report DIR`.

Figure 6 is the paper's: the top-k accuracy against k for each loss. Where ViT-B/16 was not trained, every table and
figure shows a stand-in for it.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from experiments.cifar100_vit import RANK
from experiments.cifar100_vit.losses import KINDS, LOSSES, SMOOTHING
from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.record.summary import interval
from experiments.core.report import finding, making, markdown
from experiments.core.report.finding import Finding, Numbers, Verdict, in_words
from experiments.core.report.paired import difference, minus
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run, grouped, pooled
from experiments.core.report.style import BLUE, GREEN, ORANGE, PURPLE, RED, Look, curve
from experiments.vision import dinov2
from experiments.vision.efficientnet import BEFORE_LAST_BLOCK

PAPER = "paper/"  # begins the names of runs at the paper's learning rates, where other runs have chosen their own
PAPERS_RATES, OWN = "at the paper's learning rates", "each loss at its own setting"
SHOWN_K, PAIRED_K = (1, 3, 5, 10), (1, 3, 5)
# The block of tables made here, and the page of results that shows it.
PAGES = {
    "fine-tuning on features": "cifar100_pretrained",
    "fine-tuning of the last block": "cifar100_last_block",
    "fine-tuning of a small network": "cifar100_vit",
}
# What the claim is judged by, the first of them that was trained: the paper's network, others, and parts of another.
FULL = "cifar100_vit-full"
PARTS = {
    "ViT-B/16": FULL,
    "ViT-S/14": "cifar100_transformer",
    "last block": "cifar100_last_block",
    "head": "cifar100_pretrained",
}
_LINE: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linewidth": 1.5}
_INTERVALS = (
    "Mean ± half width of the 95 % t-interval over seeds. Differences are paired by seed; a number after a stroke is "
    "the half width of their 95 % interval over test images, paired by image."
)
_ON_PAGES = ("loss", "setting", "top-1", "top-3", "top-5", "top-3 minus cross-entropy")
# The name of each loss, to be filled in from the fields of a config.
_NAMES = {
    "xent": "cross-entropy",
    "xent_temperature": "cross-entropy with a temperature",
    "topk": "top-{k}, {form}",
    "topk_mixture": "mixture of top-1 to top-{k}, {form}",
    "topk_surrogate": "top-{k} surrogate, p = {p}",
    "xent_smoothed": f"cross-entropy, {SMOOTHING:g} of the target spread",
    "truncated_entropy": "truncated top-{k} entropy",
    "smooth_svm": "smooth top-{k} SVM",
    "sorted_xent": "sorted cross-entropy, top-1 and top-{k}",
}
CROSS_ENTROPIES = ("xent", "xent_temperature")  # others are compared with the first that there is
_DRAWN = (*CROSS_ENTROPIES, "topk", "topk_mixture")  # the others are so far off that a figure would show little else


def _name(fields: Fields) -> str:
    """Names a loss, for example `top-3, p = 4/3, smooth target`; a loss without a name here keeps that of LOSSES."""
    p, k = markdown.p_name(fields["loss.p"]), fields["loss.k"]
    target = "the paper's" if fields["loss.target"] == "one_hot" else "smooth target"
    form = f"p = {p}" if k == 1 else f"p = {p}, {target}"
    loss: str = fields["loss.name"]
    return _NAMES.get(loss, loss).format(k=k, p=p, form=form)


def _look(fields: Fields) -> Look:
    """Returns colour and dashes: colour by p, dashed for the paper's target, dotted for top-1, where targets agree."""
    p, k = fields["loss.p"], fields["loss.k"]
    if fields["loss.name"] in CROSS_ENTROPIES:
        return BLUE, "-"
    if fields["loss.name"] == "topk_mixture":
        return PURPLE, "-" if p == 2.0 else "--"
    colour = RED if p == 2.0 else GREEN if abs(p - 4 / 3) < 1e-9 else ORANGE
    return colour, ":" if k == 1 else "--" if fields["loss.target"] == "one_hot" else "-"


def _is_papers(fields: Fields) -> bool:
    """Returns whether the loss is one of the two in the paper's Figure 6."""
    return _name(fields) in ("top-3, p = 2, the paper's", "top-3, p = 4/3, the paper's")


def order(run: Run) -> tuple[Any, ...]:
    """Returns the place of a run: by circumstances, loss in the order of LOSSES, learning rate, lam and decay."""
    loss = run.config["loss"]
    form = (list(LOSSES).index(loss["name"]), -loss["k"], loss["target"] != "one_hot", -loss["p"])
    return (*_circumstances(run), *form, *_rate_lam_decay(run), run.name)


PRESENTATION = Presentation(
    experiment="cifar100_vit",
    kinds=KINDS,
    method=_name,
    baseline="xent",
    order=order,
    setting=("loss", "optimizer"),
    always=("optimizer.learning_rate",),
    names={"optimizer.weight_decay": "decay", "features.layer": "features"},
)


def tables(runs: Sequence[Run], chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables: on test, then all candidates on validation; `chosen` names those that won."""
    lines: list[str] = []
    groups = compared(runs)
    for title, final in groups.items():
        rates = f", {title}" if PAPERS_RATES in groups and title in (PAPERS_RATES, OWN) else ""
        lines += [f"### Test, {_task(final[0])}{rates}: top-k accuracy in %", ""]
        lines += [f"{stand_in}.", ""] if len(lines) == 2 and (stand_in := _stand_in(final[0])) else []
        lines += markdown.table(test_rows(final))
    lines += [_INTERVALS, ""] if groups else []
    tried = _tried(runs)
    columns = {f"top-{k}": markdown.value(f"valid_accuracy/{k}") for k in SHOWN_K} | _MEAN
    for group in grouped(tried, _circumstances).values():
        rows = markdown.rows(map(_first_cells, group), group, columns, chosen)
        lines += markdown.section(f"Validation, {_task(group[0])}: top-k accuracy in %", rows)
    lines += ["Chosen for each loss: the largest mean of the top-1 to top-10 accuracies.", ""] if tried else []
    return lines


def test_rows(runs: Sequence[Run]) -> list[markdown.Cells]:
    """Returns the rows of runs on test, with differences from cross-entropy in the same circumstances."""
    references = _references(runs)
    columns: markdown.Columns = {f"top-{k}": markdown.value(f"test_accuracy/{k}") for k in SHOWN_K}
    for k in PAIRED_K:
        columns[f"top-{k} minus cross-entropy"] = markdown.minus_reference(
            references, f"test_accuracy/{k}", per_example=functools.partial(_accuracy_of_images, k)
        )
    return markdown.rows(map(_first_cells, runs), runs, columns | _MEAN)


def _accuracy_of_images(k: int, examples: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the top-k accuracy of each image, 0 or 100 %, [S, N]."""
    return 100.0 * (examples[RANK] < k)


def _first_cells(run: Run) -> markdown.Cells:
    return {"loss": _label(run), "setting": setting(run)}


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Draws Figure 6 for each group of compared runs, and the accuracy on validation against the learning rate."""
    made = {}
    drawn = [run for run in runs if run.config["loss"]["name"] in _DRAWN]
    for title, rows in compared(drawn).items():
        images, steps = _circumstances(rows[0])
        other = f"-{steps}-steps" + (f"-{images}-images" if images else "")
        made["figure6" + {PAPERS_RATES: "-paper-rates", OWN: ""}.get(title, other)] = figure6(rows)
    tried = _tried(drawn)
    first = [run for run in tried if _circumstances(run) == _circumstances(tried[0]) and not _rate_lam_decay(run)[-1]]
    several = len({_rate_lam_decay(run)[0] for run in first}) > 1
    made |= {"accuracy-by-rate": by_rate(first)} if several else {}
    grids = {name: members for name, members in grouped(first, _label).items() if _is_grid(members)}
    return made | ({"accuracy-by-rate-and-lam": by_rate_and_lam(grids)} if grids else {})


def figure6(runs: Sequence[Run]) -> Figure:
    """Draws top-k accuracy against k; beside it the differences from cross-entropy, paired by seed, with intervals."""
    figure, references = Figure(layout="constrained"), _references(runs)
    accuracy, paired = figure.subplots(1, 2)
    for run in runs:
        ks = sorted(map(int, run.summary["final"]["test_accuracy"]))
        metrics, reference = [f"test_accuracy/{k}" for k in ks], references[run.name]
        look, label = _look(run.fields), f"{_label(run)} ({setting(run)})"
        curve(accuracy, ks, [run.end(metric) for metric in metrics], look, label=label, **_LINE)
        if reference is not None:
            curve(paired, ks, [difference(run, reference, metric) for metric in metrics], look, **_LINE)
    paired.axhline(0, color=BLUE, linewidth=1.5)  # where cross-entropy lies
    for axes, label in ((accuracy, "test accuracy, %"), (paired, "minus that of cross-entropy, points")):
        axes.set(xlabel="k of the top-k accuracy", ylabel=label)
        axes.xaxis.set_major_locator(MultipleLocator(1))
    figure.suptitle(_stand_in(runs[0]), fontsize=9)
    return _with_legend(figure, columns=2)


def by_rate(runs: Sequence[Run]) -> Figure:
    """Draws the accuracy on validation against the learning rate, a curve for each loss.

    A loss that was tried with several lam is shown at that with the most rates, the best of those. The axis ends a
    little below the least accuracy of cross-entropy.
    """
    losses = grouped(runs, _label)
    figure = Figure(layout="constrained")
    for axes, k in zip(figure.subplots(1, 2), (1, 5), strict=True):
        lowest = None
        for name, members in losses.items():
            by_lam = grouped(members, lambda run: _rate_lam_decay(run)[1])
            lam, shown = max(by_lam.items(), key=lambda tried: (len(tried[1]), max(map(_mean_or_zero, tried[1]))))
            label = name if len(by_lam) == 1 else f"{name}, lam = {markdown.number(lam)}"
            values = [interval(run.final(f"valid_accuracy/{k}")) | {"interval95": None} for run in shown]
            curve(
                axes, [_rate_lam_decay(run)[0] for run in shown], values, _look(shown[0].fields), label=label, **_LINE
            )
            if shown[0].fields["loss.name"] in CROSS_ENTROPIES:
                lowest = min(value["mean"] or 0.0 for value in values) - 2
        axes.set_ylim(bottom=lowest)
        axes.set(xscale="log", xlabel="learning rate", ylabel=f"top-{k} accuracy on validation, %")
    return _with_legend(figure, columns=3)


def _is_grid(runs: Sequence[Run]) -> bool:
    """Returns whether a loss was tried at each of several rates with each of several lam."""
    rates, lams = ({_rate_lam_decay(run)[at] for run in runs} for at in (0, 1))
    return min(len(rates), len(lams)) > 1 and len(runs) == len(rates) * len(lams)


def by_rate_and_lam(grids: Mapping[str, Sequence[Run]]) -> Figure:
    """Draws the top-3 accuracy on validation as a map of rate and lam for each loss, in the same colours for all."""
    figure = Figure(figsize=(12, 3.2 * -(-len(grids) // 3)), layout="constrained")
    rates, lams = (sorted({_rate_lam_decay(run)[at] for runs in grids.values() for run in runs}) for at in (0, 1))
    largest = max(interval(run.final("valid_accuracy/3"))["mean"] or 0.0 for runs in grids.values() for run in runs)
    image: Any = None
    panels = figure.subplots(-(-len(grids) // 3), min(3, len(grids)), squeeze=False).ravel()
    for axes, (name, runs) in zip(panels, grids.items(), strict=False):
        values = np.full((len(lams), len(rates)), np.nan)
        for run in runs:
            rate, lam, _ = _rate_lam_decay(run)
            value = interval(run.final("valid_accuracy/3"))["mean"]
            values[lams.index(lam), rates.index(rate)] = np.nan if value is None else value
        image = axes.imshow(values, vmin=0, vmax=largest, origin="lower", aspect="auto", cmap="viridis")
        for (row, column), value in np.ndenumerate(values):
            text = "" if np.isnan(value) else f"{value:.1f}"
            axes.text(
                column,
                row,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color="white" if value < 0.6 * largest else "black",
            )
        axes.set_xticks(range(len(rates)), [markdown.number(rate) for rate in rates], fontsize=8)
        axes.set_yticks(range(len(lams)), [markdown.number(lam) for lam in lams])
        axes.grid(visible=False)
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="learning rate", ylabel="lam, or the temperature")
    for axes in panels[len(grids) :]:
        axes.remove()
    figure.colorbar(image, ax=list(panels[: len(grids)]), label="top-3 accuracy on validation, %")
    return figure


def _with_legend(figure: Figure, columns: int) -> Figure:
    """Adds a legend below, with a height of its own, and handles long enough for markers not to hide the dashes."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.set_size_inches(11, 3.6 + 0.2 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, handlelength=4)
    return figure


def accuracy(results: Path) -> Finding | None:
    """Judges top-3 accuracy with the paper's loss of p = 4/3 against cross-entropy's, at its rates and both tuned.

    On the paper's network if that was trained, else on the largest part of another that was.
    """
    for part, name in PARTS.items():
        groups = _read(results / name)
        if all(_papers(groups.get(title, ())) for title in (PAPERS_RATES, OWN)):
            stated, tuned = _verdict(groups[PAPERS_RATES], "its rates"), _verdict(groups[OWN], "both tuned")
            return Finding(stated, tuned, finding.PAPERS_TASK if name == FULL else f"{finding.STAND_IN}: {part}")
    return None


def _papers(runs: Sequence[Run]) -> Run | None:
    """Returns the run of the paper's loss with p = 4/3, which is fully differentiable; None without it or a rival."""
    ours = next((run for run in runs if _name(run.fields) == "top-3, p = 4/3, the paper's"), None)
    return ours if ours and _references(runs)[ours.name] else None


def _verdict(runs: Sequence[Run], how: str) -> Verdict:
    ours = _papers(runs)
    difference = minus(ours, _references(runs)[ours.name], "test_accuracy/3") if ours else None
    return Verdict(finding.of_sign(finding.sign(difference)), f"{how}: accuracy {in_words(difference)}")


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the pages on fine-tuning, by block: the losses that were trained in all circumstances."""
    made: dict[str, list[str]] = {}
    for block, name in PAGES.items():
        groups = _read(results / name)
        in_all_groups = set.intersection(*(set(map(_label, runs)) for runs in groups.values())) if groups else set()
        lines = []
        for title in (title for title in (PAPERS_RATES, OWN) if title in groups):
            rows = [row for row in test_rows(groups[title]) if row["loss"] in in_all_groups]
            shown = [{column: row[column] for column in _ON_PAGES} for row in rows]
            lines += [f"**{title.capitalize()}**", "", *markdown.table(shown)]
        made |= {block: [*lines, _INTERVALS]} if OWN in groups else {}
    return made


def _references(runs: Sequence[Run]) -> dict[str, Run | None]:
    """Returns the cross-entropy that each run is compared with: that with a temperature where there is no other."""
    found = {run.config["loss"]["name"] for run in runs}
    return PRESENTATION.references(runs, next((name for name in CROSS_ENTROPIES if name in found), ""))


# Groups and properties of runs ---------------------------------------------------------------------------------------


def compared(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups the runs on test by what they are compared at: PAPERS_RATES, OWN, or another circumstance by its name.

    OWN has the shortest runs on all images, each loss at its own setting. Runs that differ in seeds alone are joined.
    """
    final = [run for run in runs if run.config["split"] == "test" and not _is_pretraining(run)]
    # A loss whose own rate is the paper's has two equal runs, one in each group.
    paper, own = (pooled(run for run in final if (PAPER in run.name) == at_paper) for at_paper in (True, False))
    groups = {PAPERS_RATES: sorted(paper, key=order)} if paper else {}
    for group in grouped(sorted(own, key=order), _circumstances).values():
        groups[_task(group[0]) if OWN in groups else OWN] = group
    return groups


@functools.lru_cache(maxsize=8)
def _read(directory: Path) -> dict[str, list[Run]]:
    """Returns the groups of compared runs below a directory."""
    return compared(PRESENTATION.load(directory)[0])


def _label(run: Run) -> str:
    return _name(run.fields)


def setting(run: Run) -> str:
    """Writes the setting of a loss, for example `learning rate 0.1, lam = 1`; with weight decay, if there is any."""
    rate, lam, decay = _rate_lam_decay(run)
    parts = [f"learning rate {markdown.number(rate)}"]
    parts += [f"lam = {markdown.number(lam)}"] if "lam" in LOSSES[run.config["loss"]["name"]].reads else []
    return ", ".join([*parts, f"decay {markdown.number(decay)}"] if decay else parts)


def _rate_lam_decay(run: Run) -> tuple[float, float, float]:
    """Returns the learning rate, lam and weight decay of a run."""
    optimizer = run.config["optimizer"]
    return optimizer["learning_rate"], run.config["loss"]["lam"], optimizer.get("weight_decay") or 0.0


def _mean_accuracy(run: Run) -> Numbers:
    """Returns the interval of the mean of the top-1 to top-10 accuracies."""
    return interval([None if error is None else 100 - error for error in run.final("mean_topk_error")])


def _mean_or_zero(run: Run) -> float:
    return _mean_accuracy(run)["mean"] or 0.0


_MEAN = {"mean of top-1 to 10": lambda run: markdown.plus_minus(_mean_accuracy(run))}


def _circumstances(run: Run) -> tuple[int, int]:
    """Returns the training images of each class, 0 for all, and the steps: compared runs agree in these."""
    return run.config.get("images_per_class") or 0, run.config["steps"]


def _task(run: Run) -> str:
    images, steps = _circumstances(run)
    return f"{run.config['dataset']}, {steps} steps" + (f" on {images} images of each class" if images else "")


def _tried(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs from which hyper-parameters are chosen."""
    return [run for run in runs if run.config["split"] == "validation" and not _is_pretraining(run)]


def _is_pretraining(run: Run) -> bool:
    """Returns whether the run makes the weights that others start from."""
    return bool(run.config.get("export_params"))


def _stand_in(run: Run) -> str:
    """Says which network stands in for the paper's; empty if a run trains the paper's."""
    model = run.config.get("model") or {}
    if model.get("variant") == "B/16":
        return ""
    if run.config.get("pretrained") == dinov2.NAME:
        return "A stand-in for ViT-B/16, whose ImageNet-21k weights could not be obtained: all of a DINOv2 ViT-S/14"
    parts = {None: "all", BEFORE_LAST_BLOCK: "the last block and head"}
    part = parts.get(run.fields.get("features.layer"), "a head on frozen features")
    trained = f"{part} of EfficientNet-Lite0 with ImageNet-1k weights"
    if model.get("variant"):
        trained = f"{model.get('depth')} blocks of width {model.get('width')}, pretrained on coarse labels"
    return f"A stand-in for ViT-B/16, whose ImageNet-21k weights could not be obtained: {trained}"


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.cifar100_vit.report", making.DOC, make, arguments))
