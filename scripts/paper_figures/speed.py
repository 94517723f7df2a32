"""The bar chart of times relative to `lax.top_k`, from the benchmarks of two machines."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.core.record.files import read_object
from experiments.core.report.finding import Numbers
from experiments.core.report.style import BLUE, GREY, ORANGE
from scripts.paper_figures.style import TEXT
from scripts.report.benchmarks import GPU, RECORD, name_of

# Label and colour of each bar, and the contestant and the mode whose time it shows.
BARS = {
    "`topk_mask`, p = 2": (BLUE, "topk_mask p=2", "forward"),
    "with its gradient": (ORANGE, "topk_mask p=2", "forward+backward"),
}
_BEHIND_NUMBERS = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
_SHAPES = [(1, 1000, 100), (128, 1000, 100), (12800, 400, 28), (1, 25088, 2508), (1, 1000000, 100000)]
# The batch, n and k that are shown of each machine: each record has a large batch of its own.
SHAPES = {RECORD: [*_SHAPES, (65_536, 64, 6)], GPU: [*_SHAPES, (4096, 8192, 819)]}


def speed(bench: Path) -> Figure:
    """Draws a panel for each machine with a pair of bars for each shape; both are relative in the same mode."""
    figure = Figure(figsize=(TEXT, 2.3), layout="constrained")
    for axes, (name, shapes) in zip(figure.subplots(1, 2), SHAPES.items(), strict=True):
        record = read_object(bench / name, "make it again")["masks"]
        cases = {(case["batch"], case["n"], case["k"]): case["results"] for case in record["cases"]}
        _panel(axes, [(shape, cases[shape]) for shape in shapes])
        axes.set_title(name_of(record))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Axes, cases: list[tuple[tuple[int, int, int], list[Numbers]]]) -> None:
    for i, (label, (colour, contestant, mode)) in enumerate(BARS.items()):
        ratios = [
            row["ratio_to"]["lax.top_k"]
            for _, results in cases
            for row in results
            if row["status"] == "timed" and (row["contestant"], row["mode"]) == (contestant, mode)
        ]
        places = [place + 0.38 * (i - 0.5) for place in range(len(cases))]
        bars = axes.barh(places, ratios, height=0.36, color=colour, label=label.replace("`", ""))
        axes.bar_label(bars, [f"{ratio:.2g}" for ratio in ratios], padding=2, fontsize=6, bbox=_BEHIND_NUMBERS)
    axes.axvline(1.0, color=GREY, linewidth=1.0, zorder=0, label="lax.top_k")
    axes.set_yticks(range(len(cases)), [f"{batch:,} x {n:,}, k = {k:,}" for (batch, n, k), _ in cases])
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(0.008, 12), xlabel="time, lax.top_k = 1 (less is faster)")
