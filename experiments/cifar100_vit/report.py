"""The tables, figures and findings of the fine-tuning experiment: `python -m experiments.cifar100_vit.report DIR`.

Figure 6 is the paper's: the top-k accuracy against k for each loss. Where ViT-B/16 was not trained, every table and
figure shows a stand-in for it.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from scipy.special import ndtri

from experiments.cifar100_vit import RANK
from experiments.cifar100_vit.losses import KINDS, LOSSES, SMOOTHING
from experiments.core import console
from experiments.core.kinds import Fields
from experiments.core.record.summary import interval
from experiments.core.report import finding, making, markdown
from experiments.core.report.finding import Finding, Verdict, judged
from experiments.core.report.frame import difference, final
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import Run
from experiments.core.report.style import BLUE, GREEN, ORANGE, PURPLE, RED, Look, curve
from experiments.vision import dinov2
from experiments.vision.efficientnet import BEFORE_LAST_BLOCK

# What begins the names of runs at the paper's learning rates, where other runs have chosen their own: at the config's
# lam, and at the one chosen at that rate.
PAPER, PAPER_LAM = "paper/", "paper-lam/"
PAPERS_RATES, OWN = "at the paper's learning rates", "each loss at its own setting"
PAPERS_RATES_BEST_LAM = f"{PAPERS_RATES}, lam chosen"
_CHOSEN_ON = (PAPERS_RATES, PAPERS_RATES_BEST_LAM, OWN)  # in one task
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
        return BLUE, "-" if fields["loss.name"] == "xent" else "--"
    if fields["loss.name"] == "topk_mixture":
        return PURPLE, "-" if p == 2.0 else "--"
    colour = RED if p == 2.0 else GREEN if abs(p - 4 / 3) < 1e-9 else ORANGE
    return colour, ":" if k == 1 else "--" if fields["loss.target"] == "one_hot" else "-"


def _task(fields: Fields) -> str:
    images = f" on {fields['images_per_class']} images of each class" if fields.get("images_per_class") else ""
    return f"{fields['dataset']}, {fields['steps']} steps{images}"


def columns(run: Run) -> dict[str, Any]:
    """Returns what tables and figures group runs by; compared runs agree in `images` and `steps`."""
    fields = run.fields
    optimizer, lam = run.config["optimizer"], fields["loss.lam"]
    rate, decay = optimizer["learning_rate"], optimizer.get("weight_decay") or 0.0
    parts = [f"learning rate {markdown.number(rate)}"]
    parts += [f"lam = {markdown.number(lam)}"] if "lam" in LOSSES[fields["loss.name"]].reads else []
    return {
        "label": _name(fields),
        "look": _look(fields),
        "setting": ", ".join([*parts, f"decay {markdown.number(decay)}"] if decay else parts),
        "rate": rate,
        "lam": lam,
        "decay": decay,
        "images": fields.get("images_per_class") or 0,  # of each class; 0 for all
        "task": _task(fields),
        # A run that exports its parameters makes the weights that others start from.
        "final": fields["split"] == "test" and not fields.get("export_params"),
        "tried": fields["split"] == "validation" and not fields.get("export_params"),
        "drawn": fields["loss.name"] in _DRAWN,
    }


def order(run: Run) -> tuple[Any, ...]:
    """Returns the place of a run: by circumstances, loss in the order of LOSSES, learning rate, lam and decay."""
    loss, own = run.config["loss"], columns(run)
    form = (list(LOSSES).index(loss["name"]), -loss["k"], loss["target"] != "one_hot", -loss["p"])
    return (own["images"], run.config["steps"], *form, own["rate"], own["lam"], own["decay"], run.name)


PRESENTATION = Presentation(
    experiment="cifar100_vit",
    kinds=KINDS,
    method=_name,
    baseline="xent",
    order=order,
    columns=columns,
    setting=("loss", "optimizer"),
    always=("optimizer.learning_rate",),
    names={"optimizer.weight_decay": "decay", "features.layer": "features"},
)


def compared(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Groups the runs on test by what they are compared at: one of _CHOSEN_ON, or another circumstance by its name.

    OWN has the shortest runs on all images, each loss at its own setting. Runs that differ in seeds alone are joined.
    """
    groups: dict[str, pd.DataFrame] = {}
    if runs.empty:
        return groups
    runs = runs[runs["final"]]
    at_papers, best_lam = (runs.index.str.contains(prefix) for prefix in (PAPER, PAPER_LAM))
    # A loss whose own setting is the paper's has equal runs, one in each group.
    for title, chosen in {PAPERS_RATES: at_papers, PAPERS_RATES_BEST_LAM: best_lam}.items():
        groups |= {title: PRESENTATION.joined(runs[chosen])} if chosen.any() else {}
    own = PRESENTATION.joined(runs[~(at_papers | best_lam)])
    for task, group in own.groupby("task", sort=False):
        groups[task if OWN in groups else OWN] = group
    return groups


@functools.lru_cache(maxsize=8)
def _read(directory: Path) -> dict[str, pd.DataFrame]:
    return compared(PRESENTATION.load(directory)[0])


def _references(runs: pd.DataFrame) -> dict[str, Run | None]:
    """Returns the cross-entropy that each run is compared with: that with a temperature where there is no other."""
    losses = set(runs["loss.name"])
    return PRESENTATION.references(runs["run"], next((name for name in CROSS_ENTROPIES if name in losses), ""))


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


# Tables --------------------------------------------------------------------------------------------------------------


def tables(runs: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Returns the lines of all tables: on test, then all candidates on validation; `chosen` names those that won."""
    lines: list[str] = []
    groups = compared(runs)
    for title, group in groups.items():
        rates = f", {title}" if PAPERS_RATES in groups and title in _CHOSEN_ON else ""
        lines += [f"### Test, {group['task'].iloc[0]}{rates}: top-k accuracy in %", ""]
        lines += [f"{text}.", ""] if len(lines) == 2 and (text := _stand_in(group["run"].iloc[0])) else []
        lines += markdown.table(test_rows(group))
    lines += [_INTERVALS, ""] if groups else []
    tried = runs[runs["tried"]]
    for task, group in tried.groupby("task", sort=False):
        rows = markdown.rows(group, _accuracies(group, "valid_accuracy", {}), chosen)
        lines += markdown.section(f"Validation, {task}: top-k accuracy in %", rows)
    lines += ["Chosen for each loss: the largest mean of the top-1 to top-10 accuracies.", ""] if len(tried) else []
    return lines


def test_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of runs on test, with differences from cross-entropy in the same circumstances."""
    references, paired = _references(runs), {}
    for k in PAIRED_K:
        over = markdown.minus_reference(runs, references, f"test_accuracy/{k}")
        over_images = [_over_images(run, references[run.name], k) for run in runs["run"]]
        paired[f"top-{k} minus cross-entropy"] = over + over_images
    return markdown.rows(runs, _accuracies(runs, "test_accuracy", paired))


def _accuracies(runs: pd.DataFrame, metric: str, paired: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a table, with those that are `paired` before the mean over k."""
    named = {"loss": runs["label"], "setting": runs["setting"]} | {f"top-{k}": f"{metric}/{k}" for k in SHOWN_K}
    return named | dict(paired) | {"mean of top-1 to 10": markdown.cells(_mean_accuracy(runs))}


def _mean_accuracy(runs: pd.DataFrame) -> pd.DataFrame:
    return 100 - final(runs, "mean_topk_error")


def _over_images(run: Run, reference: Run | None, k: int) -> str:
    """Writes the half width of the 95 % interval of a difference in accuracy over images, as ` / 0.12`.

    As if the images were a random sample: that of the normal interval of the differences by image, each a mean over the
    seeds that both finished. Empty where a run kept no ranks, or no seed is left.
    """
    if reference is None or not (run.examples and reference.examples):
        return ""
    finals = final(pd.Series([run, reference]), f"test_accuracy/{k}")
    seeds = finals.columns[finals.notna().all()]
    if seeds.empty:
        return ""
    mine, others = (pd.DataFrame(100.0 * (one.examples[RANK] < k), one.summary["seeds"]) for one in (run, reference))
    differences = (mine.loc[seeds] - others.loc[seeds]).mean()
    return f" / {ndtri(0.975) * differences.std() / np.sqrt(len(differences)):.2f}"


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the tables of the pages on fine-tuning, by block.

    They have cross-entropies, and the other losses that were trained in all circumstances; only some choose lam at the
    paper's rates.
    """
    made: dict[str, list[str]] = {}
    for block, name in PAGES.items():
        groups = _read(results / name)
        lines = []
        shown = {_NAMES[loss] for loss in CROSS_ENTROPIES}
        of_all = [set(runs["label"]) for title, runs in groups.items() if title != PAPERS_RATES_BEST_LAM]
        shown |= set.intersection(*of_all) if of_all else set()
        for title in (title for title in _CHOSEN_ON if title in groups):
            rows = test_rows(groups[title])
            rows = rows.loc[rows["loss"].isin(shown), list(_ON_PAGES)]
            lines += [f"**{title.capitalize()}**", "", *markdown.table(rows)]
        made |= {block: [*lines, _INTERVALS]} if OWN in groups else {}
    return made


# Figures -------------------------------------------------------------------------------------------------------------


def figures(runs: pd.DataFrame) -> dict[str, Figure]:
    """Draws Figure 6 for each group of compared runs, and the accuracy on validation against the learning rate."""
    made = {}
    drawn = runs[runs["drawn"]]
    for title, rows in compared(drawn).items():
        images, steps = rows[["images", "steps"]].iloc[0]
        other = f"-{steps}-steps" + (f"-{images}-images" if images else "")
        ends = {PAPERS_RATES: "-paper-rates", PAPERS_RATES_BEST_LAM: "-paper-rates-best-lam", OWN: ""}
        made["figure6" + ends.get(title, other)] = figure6(rows)
    tried = drawn[drawn["tried"] & (drawn["decay"] == 0)]
    first = tried[tried["task"] == drawn["task"][drawn["tried"]].iloc[0]] if len(tried) else tried
    made |= {"accuracy-by-rate": by_rate(first)} if first["rate"].nunique() > 1 else {}
    maps = {name: its for name, group in first.groupby("label", sort=False) if (its := _map(group)) is not None}
    return made | ({"accuracy-by-rate-and-lam": by_rate_and_lam(maps)} if maps else {})


def figure6(runs: pd.DataFrame) -> Figure:
    """Draws top-k accuracy against k; beside it the differences from cross-entropy, paired by seed, with intervals."""
    figure, references = Figure(layout="constrained"), _references(runs)
    accuracy, paired = figure.subplots(1, 2)
    for run, (label, setting, look) in zip(runs["run"], runs[["label", "setting", "look"]].to_numpy(), strict=True):
        of_k = {int(name.split("/")[1]): name for name in run.finals if name.startswith("test_accuracy/")}
        ks, reference = sorted(of_k), references[run.name]
        values = [interval(run.final(of_k[k])) for k in ks]
        curve(accuracy, ks, values, look, label=f"{label} ({setting})", **_LINE)
        if reference is not None:
            curve(paired, ks, [difference(run, reference, of_k[k]) for k in ks], look, **_LINE)
    paired.axhline(0, color=BLUE, linewidth=1.5)  # where cross-entropy lies
    for axes, label in ((accuracy, "test accuracy, %"), (paired, "minus that of cross-entropy, points")):
        axes.set(xlabel="k of the top-k accuracy", ylabel=label)
        axes.xaxis.set_major_locator(MultipleLocator(1))
    figure.suptitle(_stand_in(runs["run"].iloc[0]), fontsize=9)
    return _with_legend(figure, columns=2)


def by_rate(runs: pd.DataFrame) -> Figure:
    """Draws the accuracy on validation against the learning rate, a curve for each loss.

    A loss that was tried with several lam is shown at that with the most rates, the best of those; one that was tried
    at one rate or two is left out. The axis ends a little below the least accuracy of cross-entropy.
    """
    runs = runs.assign(mean=_mean_accuracy(runs).mean(axis=1).fillna(0.0))
    figure = Figure(layout="constrained")
    for axes, k in zip(figure.subplots(1, 2), (1, 5), strict=True):
        lowest = None
        for label, members in runs.groupby("label", sort=False):
            by_lam = members.groupby("lam", sort=False)["mean"].agg(["size", "max"])
            lam = max(by_lam.index, key=lambda candidate: tuple(by_lam.loc[candidate]))
            shown = members[members["lam"] == lam]
            if shown["rate"].nunique() < 3:
                continue
            named = label if len(by_lam) == 1 else f"{label}, lam = {markdown.number(lam)}"
            colour, dashes = shown["look"].iloc[0]
            means = final(shown, f"valid_accuracy/{k}").mean(axis=1)
            axes.plot(shown["rate"], means, dashes, color=colour, label=named, **_LINE)
            if shown["loss.name"].iloc[0] in CROSS_ENTROPIES:
                lowest = means.fillna(0.0).min() - 2
        axes.set_ylim(bottom=lowest)
        axes.set(xscale="log", xlabel="learning rate", ylabel=f"top-{k} accuracy on validation, %")
    return _with_legend(figure, columns=3)


def _map(runs: pd.DataFrame) -> pd.DataFrame | None:
    """Returns the top-3 accuracy by lam and rate; None if a loss was not tried at each of several with each other."""
    means = runs.assign(mean=final(runs, "valid_accuracy/3").mean(axis=1))
    table = means.pivot_table("mean", "lam", "rate", aggfunc="first", dropna=False)
    return table if min(table.shape) > 1 and len(runs) == table.size else None


def by_rate_and_lam(maps: Mapping[str, pd.DataFrame]) -> Figure:
    """Draws the top-3 accuracy on validation as a map of rate and lam for each loss, in the same colours for all."""
    figure = Figure(figsize=(12, 3.2 * -(-len(maps) // 3)), layout="constrained")
    rates, lams = (
        sorted(set().union(*(getattr(table, axis) for table in maps.values()))) for axis in ("columns", "index")
    )
    largest = max(np.nanmax(table.fillna(0.0)) for table in maps.values())
    image: Any = None
    panels = figure.subplots(-(-len(maps) // 3), min(3, len(maps)), squeeze=False).ravel()
    for axes, (name, table) in zip(panels, maps.items(), strict=False):
        values = table.reindex(index=lams, columns=rates).to_numpy()
        image = axes.imshow(values, vmin=0, vmax=largest, origin="lower", aspect="auto", cmap="viridis")
        centred: Any = {"ha": "center", "va": "center", "fontsize": 8}
        for (row, column), value in np.ndenumerate(values):
            text = "" if np.isnan(value) else f"{value:.1f}"
            axes.text(column, row, text, color="white" if value < 0.6 * largest else "black", **centred)
        axes.set_xticks(range(len(rates)), [markdown.number(rate) for rate in rates], fontsize=8)
        axes.set_yticks(range(len(lams)), [markdown.number(lam) for lam in lams])
        axes.grid(visible=False)
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="learning rate", ylabel="lam, or the temperature")
    for axes in panels[len(maps) :]:
        axes.remove()
    figure.colorbar(image, ax=list(panels[: len(maps)]), label="top-3 accuracy on validation, %")
    return figure


def _with_legend(figure: Figure, columns: int) -> Figure:
    """Adds a legend below, with a height of its own, and handles long enough for markers not to hide the dashes."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.set_size_inches(11, 3.6 + 0.2 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, handlelength=4)
    return figure


# The finding and the command -----------------------------------------------------------------------------------------


def accuracy(results: Path) -> Finding | None:
    """Judges top-3 accuracy with the paper's loss of p = 4/3 against cross-entropy's, at its rates and both tuned.

    On the paper's network if that was trained, else on the largest part of another that was.
    """
    for part, name in PARTS.items():
        groups = _read(results / name)
        stated, tuned = _verdict(groups.get(PAPERS_RATES), "the paper's rates"), _verdict(groups.get(OWN), "both tuned")
        if stated and tuned:
            return Finding(stated, tuned, finding.PAPERS_TASK if name == FULL else f"{finding.STAND_IN}: {part}")
    return None


def _verdict(runs: pd.DataFrame | None, how: str) -> Verdict | None:
    """Returns the verdict on the paper's loss of p = 4/3, fully differentiable; None without it or a rival."""
    if runs is None:
        return None
    ours = runs["run"][runs["label"] == "top-3, p = 4/3, the paper's"]
    rival = _references(runs)[ours.index[0]] if len(ours) else None
    return judged(difference(ours.iloc[0], rival, "test_accuracy/3"), how + ": accuracy {}") if rival else None


make = functools.partial(making.make, PRESENTATION, tables, figures)  # takes the directory of the runs

if __name__ == "__main__":
    console.run(lambda arguments: making.on_directory("experiments.cifar100_vit.report", making.DOC, make, arguments))
