"""The summary of the demo: bars for each part, what its numbers show, and a conclusion of a sentence a part."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.core.record.summary import interval
from experiments.core.report.frame import difference
from experiments.core.report.results import Run
from scripts.demo.parts import Part

_WIDTH, _BAR = 80, 36
Runs = Mapping[str, Run]  # the runs of a part, by the names in its labels


def summary(found: Mapping[Part, Runs], page: Path) -> list[str]:
    """Returns the lines that the demo ends with."""
    sections = []
    for part, runs in found.items():
        sections += [part.heading, *_bars(part, runs), *textwrap.wrap(verdict(part, runs), _WIDTH), ""]
    seeds = max(len(run.summary["seeds"]) for runs in found.values() for run in runs.values())
    return [
        *sections,
        "A stand-in: scikit-learn's 1,797 digits, tiny networks, settings not tuned here.",
        f"±: 95 % interval over {seeds} seeds. Noise: a difference whose interval includes 0.",
        "What the paper claims, and what larger runs say of it: README.md",
        "",
        *(line for part, runs in found.items() for line in textwrap.wrap(conclusion(part, runs), _WIDTH)),
        "",
        f"Look at   {page}",
        "          one file that needs no network: pictures, all tables, curves",
        "Try next  make mnist PRESET=quick   MNIST itself (downloads it)",
        "          make demo-all             all methods, losses and routers",
    ]


def conclusion(part: Part, runs: Runs) -> str:
    """Answers the first question of a part in a sentence; a difference whose interval includes 0 is no answer."""
    one, other = part.questions[0]
    value = difference(runs[one], runs[other], part.metric)
    mean, half = value["mean"], value["interval95"]
    if half is None or abs(mean) <= half:
        answer = "no difference shows between {} and {}"
    else:
        answer = "{} is better than {}" if (mean < 0) == part.lower else "{} is worse than {}"
    ends = (interval(runs[name].final(part.metric))["mean"] for name in (one, other))
    numbers = " and ".join("none" if end is None else f"{end:.1f}" for end in ends)
    return f"{part.title.capitalize()}: {answer.format(part.labels[one], part.labels[other])} ({numbers} %)."


def _bars(part: Part, runs: Runs) -> Sequence[str]:
    values = {label: interval(runs[name].final(part.metric)) for name, label in part.labels.items()}
    longest = max(value["mean"] or 0.0 for value in values.values()) or 1.0
    lines = []
    for label, value in values.items():
        mean, half = value["mean"], value["interval95"]
        number = "diverged" if mean is None else f"{mean:.1f}" if half is None else f"{mean:.1f} ± {half:.1f}"
        lines.append(f"  {label:23} {'#' * round(_BAR * (mean or 0.0) / longest):{_BAR}} {number}")
    return lines


def verdict(part: Part, runs: Runs) -> str:
    """Says which differences the numbers show, and which are noise.

    A difference is noise if the 95 % t-interval of its mean, paired by seed, includes 0, or if there are fewer than two
    pairs.
    """
    clear, noise = [], []
    for one, other in part.questions:
        value = difference(runs[one], runs[other], part.metric)
        mean, half = value["mean"], value["interval95"]
        names = part.labels[one], part.labels[other]
        if half is None:
            noise.append(f"{names[0]} against {names[1]} (fewer than two seeds)")
        elif abs(mean) <= half:
            noise.append(f"{names[0]} against {names[1]} ({mean:+.1f} ± {half:.1f})")
        else:
            better = "better" if (mean < 0) == part.lower else "worse"
            clear.append(f"{names[0]} is {better} than {names[1]} by {abs(mean):.1f} ± {half:.1f} points")
    said = f"Take from it: {'; '.join(clear) or 'no clear difference'}."
    return f"{said} Noise: {'; '.join(noise)}." if noise else said
