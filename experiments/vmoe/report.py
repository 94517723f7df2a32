"""Names, tables, figures and findings of the V-MoE experiment: `python -m experiments.vmoe.report DIR`.

It reads the runs below DIR and writes DIR/table.md and DIR/figures/figure7: the precision-at-1 of each router minus
that of the hard one, after each length of training.
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.core import console
from experiments.core.errors import printable
from experiments.core.kinds import Fields, is_of
from experiments.core.record.summary import interval
from experiments.core.report import finding, making
from experiments.core.report.finding import Finding, Measured, Verdict, first_on_accelerator, on_accelerator
from experiments.core.report.markdown import Numbers, mean, number, outcome, p_name, plus_minus, signed, table
from experiments.core.report.paired import detectable, difference, difference_of
from experiments.core.report.presentation import Presentation
from experiments.core.report.results import NUMBER, Run
from experiments.core.report.runs import dotted, frame, pooled
from experiments.core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look
from experiments.vmoe.router_kinds import KINDS, ROUTERS

ON_TOKENS = "vmoe_tokens"  # the directory of results on features of a frozen network
PAPER_OVERHEAD = 15 / 10  # hours with the relaxed router and with the hard one

# Names and looks by the router's name in the config; others go by that name, in black.
NAMES = {
    "annealed": "annealed to hard",
    "unbounded": "relaxed, buffers for all",
    "straight_through": "straight-through",
    "balanced": "balanced plan",
    "soft": "Soft MoE",
    "dense": "dense MLP, no experts",
    "none": "neither experts nor MLP",
}
LOOKS: dict[str, Look] = {
    "hard": (BLUE, "-"),
    "relaxed": (RED, "-"),
    "annealed": (ORANGE, "--"),
    "unbounded": (RED, ":"),
    "straight_through": (PURPLE, "--"),
    "balanced": (GREEN, "--"),
    "token_choice": (GREY, "-"),
    "soft": (SKY, "-"),
    "dense": (GREY, ":"),
    "none": (GREY, "-."),
}
_PAPERS = "relaxed, logits, Dykstra, 10 iterations"
_LOOKS_OF_FORMS: dict[str, Look] = {
    "hard, logits": (BLUE, "--"),
    "relaxed, logits, p = 4/3": (GREEN, "-"),
    "relaxed, logits, 84 slots": (PURPLE, "-"),
    "relaxed, gates": (BLACK, "-"),
    _PAPERS: (ORANGE, "-"),
}
_HEADLINE = {
    *("hard, gates", "hard, logits", "relaxed, logits", "annealed to hard, logits", "straight-through, logits"),
    *("token choice", "Soft MoE", "dense MLP, no experts"),
}
_METRIC = "test_precision_at_1"
# Metrics of the routing, means over the layers of experts, by the column that shows them.
_ROUTING = {
    "dropped mass, %": "dropped_mass",
    "tokens of an expert": "support",
    "their variation": "load_variation",
    "experts of a token": "experts_per_token_mean",
    "most in a group": "experts_per_token_max",
    "tokens with an expert, %": "served_by_1",
    "entropy of gates, nats": "entropy",
    "specialisation, nats": "specialisation",
}
_DEFINITIONS = """
Logits or gates: what the tokens compete by, before or after the softmax over the experts. Mean ± half width of the 95 %
t-interval over seeds; differences are paired by seed. *Minus hard*: routers with lam minus the hard one of their score,
all others minus the hard one of the gates. *Step time over hard*: relative to the same run, where both trained on the
same machine. *Detectable*: a true difference this large is found in 80 % of such experiments.

What routers do is given for the end of training, as means over groups, layers and seeds. *Dropped mass*: the part of a
mask that finds no room in the buffer. *Their variation*: standard deviation over mean, over the experts of a group.
*Specialisation*: mutual information of expert and class. *Stability*: the pairs of token and expert that are in two
successive rows of metrics, of those in either; mean over training.
"""


def method(fields: Fields) -> str:
    """The name of a router with its form, as `relaxed, logits, p = 4/3` or `relaxed, logits, 84 slots`."""
    router = fields["router.name"]
    reads = KINDS.reads[router]
    parts = [NAMES.get(router, router.replace("_", " "))]
    if "router.score" in reads:
        parts.append(fields["router.score"])
    if "router.p" in reads and fields["router.p"] != 2:
        parts.append(f"p = {p_name(fields['router.p'])}")
    if "router.dykstra" in reads and fields["router.dykstra"]:
        parts.append(f"Dykstra, {fields['router.dykstra']} iterations")
    if fields["router.capacity"]:
        parts.append(f"{fields['router.capacity']} slots")
    return ", ".join(parts)


def far(fields: Fields, of_hard: Fields) -> tuple[bool, bool]:
    """How far a hard router is: that of its score is nearest to a router with lam, that of the gates to all others."""
    usual = ROUTERS["hard"].score
    wanted = fields["router.score"] if "router.lam" in KINDS.reads.get(fields["router.name"], ()) else usual
    return of_hard["router.score"] != wanted, of_hard["router.score"] != usual


def _headline(fields: Fields) -> bool:
    on_tokens = fields["split"] == "test" and fields["steps"] == 800 and "features.network" in fields
    return on_tokens and method(fields) in _HEADLINE


PRESENTATION = Presentation(
    experiment="vmoe",
    title="the V-MoE experiment",
    kinds=KINDS,
    method=method,
    look=lambda fields: _LOOKS_OF_FORMS.get(method(fields)) or LOOKS.get(fields["router.name"], (BLACK, "-")),
    baseline="hard",
    setting=("router.capacity",),
    names={
        "optimizer.learning_rate": "learning rate",
        "router.lam.start": "lam",
        "router.lam.end": "lam at the end",
        "router.limit": "experts of a token at most",
    },
    headline=_headline,
    far=far,
    types={
        **dict.fromkeys(("dataset", "split", "model.variant", "router.score"), str),
        **dict.fromkeys(("steps", "router.dykstra", "router.capacity"), int),
        **dict.fromkeys(("router.lam.start", "optimizer.learning_rate"), NUMBER),
    },
)
load = functools.cache(lambda directory: PRESENTATION.load(directory)[0])  # committed runs do not change


def make(directory: Path) -> list[Path]:
    """Writes and prints the tables of the runs below `directory` and draws figures; returns the files written."""
    return making.make(PRESENTATION, tables, figures, directory)


def final_runs(found: pd.DataFrame) -> pd.DataFrame:
    """The runs on test in the order of `_in_order`; those that differ in their seeds alone are one."""
    return _in_order(pooled(run for run in found["run"] if run.config["split"] == "test"))


def _in_order(runs: Iterable[Run]) -> pd.DataFrame:
    """A frame of runs: short ones first, then in the order of ROUTERS, by learning rate and lam."""

    def place(run: Run) -> tuple[Any, ...]:
        router, rate = run.config["router"], run.config["optimizer"]["learning_rate"]
        form = (router["score"] != ROUTERS[router["name"]].score, router["dykstra"], router["capacity"], -router["p"])
        kind = list(ROUTERS).index(router["name"])
        return run.config["steps"], kind, *form, rate, router["lam"]["start"], run.name

    return frame(sorted(runs, key=place))


def _by_length(found: pd.DataFrame) -> list[pd.DataFrame]:
    return [alike for _, alike in found.groupby("steps")] if len(found) else []


def _beside_hard(final: pd.DataFrame, function: Callable[[Run, Run], Any], *, itself: bool = False) -> pd.Series:
    """Applies a function to each run and the hard router that it is compared with; None where there is none.

    The hard router is compared with `itself`, or with none.
    """
    hards = PRESENTATION.references(final)
    if itself:
        hards = hards.where(hards.notna() | (final["router.name"] != "hard"), final["run"])
    pairs = zip(final["run"], hards, strict=True)
    return pd.Series([hard and function(run, hard) for run, hard in pairs], index=final.index, dtype=object)


def _minus_hard(final: pd.DataFrame) -> pd.Series:
    return _beside_hard(final, lambda run, hard: difference(run, hard, _METRIC))


def tables(found: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """The lines of all tables: on test, what the routers do, and the sweeps; `chosen` names the runs that won one."""
    lines: list[str] = []
    for final in _by_length(final_runs(found)):
        lines += [] if lines else [f"{_title(final)}.", *_DEFINITIONS.split("\n")]
        steps = final["steps"].iloc[0]
        lines += [f"### Test: precision-at-1 after {steps} steps", "", *_test_table(final)]
        lines += [f"### What the routers do after {steps} steps", "", *_routing_table(final)]
    for tried in _by_length(_in_order(run for run in found["run"] if run.config["split"] == "validation")):
        summaries = tried["run"].map(lambda run: run.summary)
        cells = columns(PRESENTATION, tried) | {
            "precision-at-1, %": tried["run"].map(lambda run: plus_minus(interval(run.final("valid_precision_at_1")))),
            "dropped mass, %": _routing(tried, "dropped_mass", "valid").map(mean),
            "tokens of an expert": _routing(tried, "support", "valid").map(mean),
            "diverged": summaries.map(lambda summary: f"{summary['diverged']} of {len(summary['seeds'])}"),
            "choice": ["chosen" if name in chosen else "" for name in tried.index],
        }
        lines += [f"### Validation, {tried['steps'].iloc[0]} steps", "", *table(pd.DataFrame(cells), text=1)]
    return lines


def columns(presentation: Presentation, found: pd.DataFrame) -> dict[str, pd.Series]:
    """The first cells of a row: the router, and in columns of their own the learning rate and lam chosen for it."""
    names = found["run"].map(lambda run: presentation.method(dotted(run.config)))
    own = ("optimizer.learning_rate", "router.lam", "steps")
    parts = presentation.parts(found).map(lambda parts: [text for name, text in parts.items() if not is_of(name, own)])

    def lam(run: Run) -> str:
        read = presentation.read(dotted(run.config))
        ends = [number(read[name]) for name in ("router.lam.start", "router.lam.end") if name in read]
        return " to ".join(ends) or "-"

    return {
        "router": pd.Series([", ".join([name, *more]) for name, more in zip(names, parts, strict=True)], found.index),
        "learning rate": found["optimizer.learning_rate"].map(number),
        "lam": found["run"].map(lam),
    }


def _test_table(final: pd.DataFrame) -> list[str]:
    minus = _minus_hard(final)
    cells = columns(PRESENTATION, final) | {
        "precision-at-1, %": final["run"].map(lambda run: plus_minus(interval(run.final(_METRIC)))),
        "minus hard": minus.map(signed),
        "detectable": minus.map(detectable).map(digits),
        "step time over hard": _beside_hard(final, _step_over_hard, itself=True).map(digits),
    }
    return table(pd.DataFrame(cells | outcome(final)), text=1)


def digits(value: float | None) -> str:
    """Writes a number without an interval as `1.50`; `-` if there is none."""
    return "-" if pd.isna(value) else f"{value:.2f}"


def _step_over_hard(run: Run, hard: Run) -> float | None:
    # A run that trains alone has more processors than those that trained side by side.
    mine, other = _step_seconds(run), _step_seconds(hard)
    return mine / other if mine and other and run.trained_on == hard.trained_on else None


def _step_seconds(run: Run) -> float | None:
    """The median over the second half of the rows, all seeds together; not known for runs of several workdirs."""
    times = [row["performance"]["step_seconds"] for row in run.rows[len(run.rows) // 2 :] if row.get("performance")]
    times = [time for time in times if time is not None]
    return float(np.median(times)) if times else None


def _routing_table(final: pd.DataFrame) -> list[str]:
    """The table of routing metrics, with the columns for which some router has a number."""
    cells = {column: _routing(final, name).map(mean) for column, name in _ROUTING.items()}
    cells["stability, %"] = final["run"].map(_stability).map(lambda values: mean(interval(values)))
    cells["stability minus hard"] = _beside_hard(final, _stability_minus).map(signed)
    known = {column: values for column, values in cells.items() if (values != "-").any()}
    return table(pd.DataFrame(columns(PRESENTATION, final) | known), text=1)


def _routing(found: pd.DataFrame, metric: str, prefix: str = "test") -> pd.Series:
    """Intervals of a metric of the routers, means over their layers; None where a router has no such metric."""

    def value(run: Run) -> Numbers | None:
        layers = run.summary["final"].get(f"{prefix}_router", {}).values()
        of_layers = [layer[metric]["per_seed"] for layer in layers if metric in layer]
        return interval(_over_layers(of_layers)) if of_layers else None

    return found["run"].map(value)


def _over_layers(layers: Iterable[list[float | None]]) -> list[float | None]:
    """Means over the layers of experts, by seed."""
    return [None if None in seed else float(np.mean(np.array(seed, float))) for seed in zip(*layers, strict=True)]


def _stability(run: Run) -> list[float | None]:
    """Means over training, by seed; empty where a run has none, and for a run of several workdirs, without rows."""
    if "test_stability" not in run.summary["final"] or not run.rows:
        return []
    return _over_layers([_over_layers(row["test_stability"].values()) for row in run.rows[1:]])  # the first has none


def _stability_minus(run: Run, hard: Run) -> Numbers | None:
    mine, others = _stability(run), _stability(hard)
    return difference_of(run, hard, mine, others) if mine and others else None


def _is_stand_in(run: Run) -> bool:
    return run.config["model"]["variant"] not in ("S/32", "B/16")


def _examples(run: Run) -> str:
    """The examples that a run trains on: `cifar100`, or ImageNet's features of it, with their network."""
    features, dataset = run.config.get("features"), printable(run.config["dataset"])
    if not features:
        return dataset
    return f"ImageNet's features of {dataset} ({features['network']} at {features['size']} pixels, frozen)"


def _title(final: pd.DataFrame) -> str:
    run = final["run"].iloc[0]
    return f"A stand-in for V-MoE S/32 on JFT-300M: {_examples(run)}" if _is_stand_in(run) else _examples(run)


def figures(found: pd.DataFrame) -> dict[str, Figure]:
    """The figures that the runs allow."""
    final = final_runs(found)
    return {"figure7": figure7(final)} if len(final) and _minus_hard(final).notna().any() else {}


def figure7(final: pd.DataFrame) -> Figure:
    """Final precision minus that of the hard router, with intervals: a row for each router, a panel for each length."""
    groups = _by_length(final)
    rows = [len(group) for group in groups]
    figure = Figure(figsize=(9, 1 + 0.3 * sum(rows) + 0.4 * len(rows)), layout="constrained")
    column = figure.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    for axes, group in zip(column, groups, strict=True):
        for place, (run, minus) in enumerate(zip(group["run"], _minus_hard(group), strict=True)):
            colour, _ = PRESENTATION.look(dotted(run.config))
            if minus is None and run.config["router"]["name"] == "hard":
                axes.plot(0.0, place, "o", color=colour, markerfacecolor="white")
            elif minus and minus["mean"] is not None:
                axes.errorbar(minus["mean"], place, xerr=minus["interval95"], color=colour, marker="o", capsize=3)
        axes.axvline(0.0, color=GREY, linewidth=0.8)
        axes.set_yticks(range(len(group)), list(PRESENTATION.labels(group)))
        axes.set_ylim(len(group) - 0.5, -0.5)
        itself = axes.secondary_yaxis("right")
        itself.set_yticks(range(len(group)), [f"{plus_minus(interval(run.final(_METRIC)))} %" for run in group["run"]])
        itself.tick_params(length=0)
        axes.set_title(f"after {group['steps'].iloc[0]} steps; right: precision-at-1", loc="left")
    column[-1].set_xlabel("test precision-at-1 minus that of the hard router, points")
    figure.suptitle(_title(final), fontsize=10)
    return figure


def precision(results: Path) -> Finding | None:
    """The relaxed routers against the hard one: on ImageNet's features, where these results are there."""
    final = next((final_runs(runs) for name in (ON_TOKENS, "vmoe") if len(runs := load(results / name))), None)
    if final is None or (rows := final[final["router.name"] == "relaxed"]).empty:
        return None
    minus, cells = _minus_hard(final)[rows.index], columns(PRESENTATION, rows)
    shown = minus[rows["router.dykstra"] == 10]  # the paper's
    verdict = Verdict(
        finding.answer(signs := [finding.sign(one) for one in minus]),
        finding.higher_or_lower("precision", (shown if len(shown) else minus).iloc[0]),
    )
    names = cells["router"].str.removeprefix("relaxed, ")
    names += ", learning rate " + cells["learning rate"] + ", lam = " + cells["lam"]
    if rows["steps"].nunique() > 1:
        names += ", " + rows["steps"].map(str) + " steps"
    found = [value for value in minus.map(detectable) if value is not None]
    power = f"; a true difference of {min(found):.2f} to {max(found):.2f} points is found in 80 % of such experiments"
    stand_in = _is_stand_in(run := final["run"].iloc[0])
    plain = f"On {_examples(run)}, a" if stand_in else "A"
    return Finding(
        f"{plain} relaxed router is more precise than the hard one in {signs.count(1)} of {len(rows)} "
        f"comparisons, and less in {signs.count(-1)}{power if found else ''}.",
        finding.NOT_POSSIBLE if stand_in else verdict,
        verdict if stand_in else None,
        finding.STAND_IN if stand_in else finding.PAPERS_TASK,
        "points of precision-at-1, minus those of the hard router",
        [Measured.of(name, one) for name, one in zip(names, minus, strict=True)],
    )


def step_times(results: Path) -> Finding | None:
    """The time of a step over that with the hard router: accelerators first.

    On CPUs the time that the routers take alone counts, as whole steps differ by more than that from one to the next.
    """
    record = first_on_accelerator(results, "router")
    if record is None:
        return None
    by, how = ("ratio_of_steps", "") if on_accelerator(record) else ("one_plus_extra_over_step", ", by routers alone")
    ratios = {name: record["routers"][name][by] for name in ("relaxed, logits", "Dykstra, 10 iterations")}
    most = f"{max(ratios.values()):.3f} times as long"
    verdict = Verdict(finding.in_every_case([max(ratios.values()) >= PAPER_OVERHEAD]), most)
    return Finding(
        f"A step of S/32 with a relaxed router takes up to {most} as with the hard one{how}; the paper's takes "
        f"{PAPER_OVERHEAD:g} times as long.",
        verdict if on_accelerator(record) else finding.NOT_POSSIBLE,
        None if on_accelerator(record) else verdict,
        finding.name_of(record),
        "times a step with the hard router",
        [Measured(name, ratio) for name, ratio in ratios.items()],
    )


def blocks(results: Path) -> dict[str, list[str]]:
    """The tables of the pages of results, of the shortest runs on test, by the names of their blocks."""
    return {
        f"{name}, {final['steps'].iloc[0]} steps": _test_table(final)[:-1]
        for name in (ON_TOKENS, "vmoe")
        for final in list(_by_length(final_runs(load(results / name))))[:1]
    }


if __name__ == "__main__":
    console.run(functools.partial(making.main, make, "vmoe"))
