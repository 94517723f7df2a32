"""Findings on the fine-tuning experiment. Where a small network stands in for ViT-B/16, no verdict goes beyond that."""

from pathlib import Path

from experiments.cifar100_vit.report.table import SHOWN_K
from experiments.core.report.benchmarks import first_on_accelerator, name_of, on_accelerator
from experiments.core.report.finding import Finding, Numbers, above, all_above, read
from experiments.core.report.markdown import plus_minus

# The two losses of Figure 6, as tables call them.
PAPERS = ("top-3, p = 2, the paper's", "top-3, p = 4/3, the paper's")
# Of a step with cross-entropy: 9.7 and 10 seconds, of 9.5.
PAPER_OVERHEAD = {"top-3, p = 2": 9.7 / 9.5, "top-3, p = 4/3": 10 / 9.5}


def accuracy(results: Path) -> Finding | None:
    """The top-3 losses against cross-entropy, for several k: on ImageNet's features, if there are such results."""
    features = read(results / "cifar100_pretrained" / "table.json")
    return _on_features(features) if features else _on_small_network(results)


def _on_features(table: Numbers) -> Finding:
    """The paper's two losses at the paper's learning rates, and all at their own: two answers to one question."""
    wholes, briefs, counts = [], [], []
    for where, rows in {
        "at the paper's rates": table["final_at_paper_rates"],
        "each at its own rate": table["final"],
    }.items():
        papers = [row for row in rows if row["loss"] in PAPERS]
        found = [row["minus_cross_entropy"][str(k)] for row in papers for k in SHOWN_K]
        counts.append(f"{sum(map(above, found))} of {len(found)} above 0 {where}")
        shown = {
            row["loss"].removeprefix("top-3, ").removesuffix(", the paper's"): row["minus_cross_entropy"]
            for row in papers
        }
        wholes.append(
            f"{where}: "
            + "; ".join(
                f"{loss}: " + ", ".join(f"top-{k} {plus_minus(values[str(k)], signed=True)}" for k in SHOWN_K)
                for loss, values in shown.items()
            )
        )
        briefs.append(
            f"{where} " + ", ".join(f"{loss}: {plus_minus(values['3'], signed=True)}" for loss, values in shown.items())
        )
    network = "a linear head on features of EfficientNet-Lite0 (ImageNet-1k)"
    return Finding(
        "accuracy minus cross-entropy's, points, " + "; ".join(wholes),
        "substitute",
        f"intervals: {'; '.join(counts)}; on {network}",
        f"on ImageNet-1k features, top-3 accuracy minus cross-entropy's, points: {'; '.join(briefs)}",
    )


def _on_small_network(results: Path) -> Finding | None:
    table = read(results / "cifar100_vit" / "table.json")
    rows = [row for row in (table or {}).get("final", []) if row["loss"].startswith("top-3")]
    if not rows:
        return None
    parts: list[str] = []
    all_differences: list[Numbers | None] = []
    for row in rows:
        differences = {k: row["minus_cross_entropy"].get(str(k)) for k in SHOWN_K}
        all_differences += differences.values()
        shown = ", ".join(f"top-{k} {plus_minus(value, signed=True)}" for k, value in differences.items())
        parts.append(f"{row['loss']}: {shown}")
    ours = "accuracy minus cross-entropy's, points: " + "; ".join(parts)
    brief = "top-3 accuracy minus cross-entropy's, points: " + "; ".join(
        f"{row['loss'].removeprefix('top-3, ')}: {plus_minus(row['minus_cross_entropy'].get('3'), signed=True)}"
        for row in rows
    )
    stand_in = "a small network pretrained on coarse labels" if table["stand_in"] else ""
    return all_above(ours, all_differences, brief, stand_in)


def step_times(results: Path) -> Finding | None:
    """What a step costs beside one with cross-entropy, by the benchmark of losses: accelerators first."""
    record = first_on_accelerator(results, "losses")
    if record is None:
        return None
    extra = {name: record["losses"][name]["one_plus_extra_over_step"] for name in PAPER_OVERHEAD}
    ours = "by timing the losses alone: " + "; ".join(
        f"{name}: {100 * (ratio - 1):+.2g} % of a step" for name, ratio in extra.items()
    )
    settings = record["settings"]
    why = f"ViT-{settings['variant']} at {settings['size']} pixels on {name_of(record)}"
    within = all(ratio <= PAPER_OVERHEAD[name] for name, ratio in extra.items())
    if not on_accelerator(record) or (settings["variant"], settings["size"]) != ("B/16", 384):
        return Finding(ours, "substitute", f"{why}; {'no more' if within else 'more'} than the paper's")
    return Finding(ours, "reproduced" if within else "not", f"{why}; asked for: no more than the paper's")
