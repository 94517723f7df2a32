"""Tables, figures and findings of the pruning experiment: `python -m experiments.mnist_pruning.report DIR`."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.core import console
from experiments.core.kinds import is_of
from experiments.core.record.summary import interval
from experiments.core.report import making
from experiments.core.report.finding import (
    PAPERS_TASK,
    Finding,
    Measured,
    Numbers,
    Verdict,
    answer,
    higher_or_lower,
    in_every_case,
    more_or_less,
    sign,
)
from experiments.core.report.markdown import mean, outcome, p_name, plus_minus, signed, table
from experiments.core.report.paired import difference
from experiments.core.report.results import Run
from experiments.core.report.runs import RUN, dotted, final
from experiments.mnist_pruning import report_figures
from experiments.mnist_pruning.methods import KINDS
from experiments.mnist_pruning.presentation import (
    BUDGETS,
    PRESENTATION,
    cells,
    dense_at_best,
    groups,
    in_order,
    is_papers,
    is_tuned,
    kinds,
    method_of,
    part_of,
    sections,
    task,
)

# Section 6 gives one number in print, for hard top-k with the gradient of entropic optimal transport.
PAPER_OT_ERROR = 5.9


def _settings(section: pd.DataFrame, sweep: pd.DataFrame) -> pd.Series:
    """The fields in which each run differs from others of its method, and from those tried on validation."""
    both = pd.concat([section, sweep[~sweep.index.isin(section.index)]])
    of_the_suite = ("split", "epochs", "steps", "density", "budget", "prune_layers")
    return PRESENTATION.settings(both.drop(columns=list(of_the_suite), errors="ignore"))[section.index]


def _methods(section: pd.DataFrame) -> pd.Series:
    return section[RUN].map(lambda run: method_of(dotted(run.config)))


def _beside(found: pd.DataFrame, references: pd.Series, measure: Callable[[Run, Run], Any]) -> pd.Series:
    """A measure of each run and its reference, by run; None without one."""
    measured = {name: references[name] and measure(run, references[name]) for name, run in found[RUN].items()}
    return pd.Series(measured, index=found.index, dtype=object)


def _minus(found: pd.DataFrame, references: pd.Series, metric: str, of_reference: str = "") -> pd.Series:
    """The difference to the reference of each run, by run; None without one."""
    return _beside(
        found, references, lambda run, other: difference(run, other, metric, of_reference=of_reference or metric)
    )


# Tables --------------------------------------------------------------------------------------------------------------


def tables(found: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """The lines of all tables; `chosen` names the runs that won a choice on validation."""
    found = in_order(found)
    lines = []
    sweeps = sections(found, "validation")
    for key, section in sections(found, "test").items():
        lines += [f"### Test, {_title(key, section)}", "", *table(paper_cells(section, sweeps.get(key, section)))]
        if key[0] == "mnist":
            lines += [f"The paper states one number: {PAPER_OT_ERROR} % with the gradient of optimal transport.", ""]
    if lines:
        lines += [
            "Mean ± half width of the 95 % t-interval over seeds; *minus hard* is paired by seed, at the same learning",
            "rate where there is such a run. *Hardened* keeps the largest weights only, as many as the density allows.",
            "*Epochs to hard's error*: until the error that hard top-k ends with, by seed, and how many weights are",
            "not 0 then, or how many seeds get there; *hardened*: until the largest weights alone have it. The seeds",
            "of a run train together: its seconds are divided among them.",
            "",
        ]
    for key, section in sweeps.items():
        lines += [f"### Validation, {_title(key, section)}", "", *table(sweep_cells(section, chosen))]
    return [*lines, *_best_lines(found, chosen), *_why_lines(found)]


def _title(key: Sequence[Any], section: pd.DataFrame) -> str:
    dataset, density, _, pruned = key
    of = f"layers {' and '.join(map(str, pruned))}" if pruned else "every matrix but embeddings"
    epochs = sorted({run.summary["epochs"] for run in section[RUN]})
    return f"{dataset}: {100 * density:g} % of {of} kept, {' or '.join(map(str, epochs))} epochs"


def _shares(found: pd.DataFrame) -> pd.Series:
    return final(found, "train_density").map(lambda value: plus_minus(value, scale=100))


def _seconds(found: pd.DataFrame) -> pd.Series:
    """Per epoch and seed."""
    summaries = found[RUN].map(lambda run: run.summary)
    return summaries.map(lambda one: f"{one['seconds'] / (one['epochs'] * len(one['seeds'])):.2g}")


def paper_cells(section: pd.DataFrame, sweep: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table of tests in the paper's setting, by run."""
    hard = PRESENTATION.references(section)
    reached = _beside(section, hard, lambda run, other: _reached(run, other, "test_error"))
    hardened = _beside(section, hard, lambda run, other: _reached(run, other, "hardened_error"))
    return pd.DataFrame(
        {
            "method": _methods(section),
            "setting": _settings(section, sweep),
            "test error, %": final(section, "test_error").map(plus_minus),
            "minus hard": _minus(section, hard, "test_error").map(signed),
            "density in training, %": _shares(section),
            "hardened error, %": final(section, "hardened_error").map(plus_minus),
            "epochs to hard's error": reached.map(_in_brackets),
            "hardened epochs to it": hardened.map(_epochs),
            "s per epoch and seed": _seconds(section),
            **outcome(section),
        }
    )


def _reached(run: Run, hard: Run, metric: str) -> Numbers:
    """Finds by seed the first epoch with at most the error that hard top-k ends with, and the density then."""
    ends = dict(zip(hard.summary["seeds"], hard.final("test_error"), strict=True))
    epochs: list[float | None] = []
    shares: list[float | None] = []
    for i, seed in enumerate(run.summary["seeds"]):
        errors = [(row, row[metric][i]) for row in run.rows]
        end = ends.get(seed)
        found = next((row for row, error in errors if None not in (error, end) and error <= end), None)
        epochs.append(None if found is None else found["epoch"])
        shares.append(None if found is None else found["train_density"][i])
    return {"epochs": interval(epochs), "density": interval(shares)}


def _epochs(reached: Numbers | None) -> str:
    """`1.20 ± 0.30`; unless all seeds get there, in how many they do."""
    if reached is None:
        return "-"
    seeds = reached["epochs"]["per_seed"]
    there = len(seeds) - seeds.count(None)
    return plus_minus(reached["epochs"]) if there == len(seeds) else f"in {there} of {len(seeds)} seeds"


def _in_brackets(reached: Numbers | None) -> str:
    """The epochs, and the density then, if every seed got there."""
    if reached is None or None in reached["epochs"]["per_seed"]:
        return _epochs(reached)
    return f"{_epochs(reached)} (at {mean(reached['density'], scale=100)} %)"


def sweep_cells(section: pd.DataFrame, chosen: frozenset[str]) -> pd.DataFrame:
    """The cells of a table of candidates, by run, which are chosen by the hardened error; the dense one by its own."""
    lost = section[RUN].map(lambda run: f"{run.summary['diverged']} of {len(run.summary['seeds'])}")
    return pd.DataFrame(
        {
            "method": _methods(section),
            "setting": _settings(section, section),
            "validation error, %": final(section, "valid_error").map(plus_minus),
            "hardened, %": final(section, "hardened_error").map(plus_minus),
            "density in training, %": final(section, "train_density").map(lambda value: mean(value, scale=100)),
            "diverged": lost,
            "": ["chosen" if name in chosen else "" for name in section.index],
        }
    )


def _best_lines(found: pd.DataFrame, chosen: frozenset[str]) -> list[str]:
    """Every method at its best, at a number of weights that is the same for all."""
    lines = []
    sweep = part_of(found, "best", "validation")
    for (dataset, _, _), section in cells(found).items():
        title = f"{dataset}: every method at its best, {_asked(section[RUN].iloc[0])} kept"
        lines += [f"### Test, {title}", "", *table(best_cells(section, found))]
    if lines:
        lines += [
            "A cosine learning rate, at the best on validation of as many settings of each kind as of any other that",
            "prunes; the dense network has its learning rate alone to choose. The error is that of the largest weights",
            "alone, as many as the density allows; of the dense network, of all. *Minus* is paired by seed.",
            "",
        ]
    for (_, density), rows in groups(sweep, lambda run: (task(run), -run.config["density"])).items():
        title = f"every method at its best, {-100 * density:g} % of the whole network kept"
        lines += [f"### Validation, {title}", "", *table(sweep_cells(rows, chosen))]
    return lines


def _asked(run: Run) -> str:
    return f"{100 * run.config['density']:g} % of {BUDGETS[run.config['budget']]}"


# Compares with the dense network, whose number of weights is none of its circumstances.
_OF_ALL_WEIGHTS = dataclasses.replace(
    PRESENTATION, setting=(*PRESENTATION.setting, "prune_layers", "budget", "density")
)


def best_cells(section: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table of methods at their best, by run: the dense network, then those of a section of `cells`."""
    shown = pd.concat([dense_at_best(section, found), section])
    minus = {"dense": _minus(shown, _OF_ALL_WEIGHTS.references(shown, "dense"), "hardened_error", "test_error")}
    for method in ("gradual", "movement"):
        references = PRESENTATION.references(section, method).reindex(shown.index).replace(np.nan, None)
        minus[method] = _minus(shown, references, "hardened_error")
    off = [" (not as asked)" if _is_off(run) else "" for run in shown[RUN]]
    return pd.DataFrame(
        {
            "method": _methods(shown),
            "setting": _settings(shown, part_of(found, "best", "validation")),
            "test error, %": _errors(shown).map(plus_minus),
            **{f"minus {name}": values.map(signed) for name, values in minus.items()},
            "density in training, %": _shares(shown) + off,
            "s per epoch and seed": _seconds(shown),
            **outcome(shown),
        }
    )


def _errors(found: pd.DataFrame) -> pd.Series:
    """The error of the largest weights alone; of all where the network is dense, which has no density to compare."""
    return final(found, "test_error").where(found["method"] == "dense", final(found, "hardened_error"))


def _is_off(run: Run) -> bool:
    """Whether a method keeps other than it is asked to, by more than a twentieth; the dense network is not asked."""
    share, asked = interval(run.final("train_density"))["mean"], run.config["density"]
    return run.config["method"] != "dense" and share is not None and abs(share - asked) > asked / 20


# Names runs by what the paper leaves open, where all of them have one method.
_OPEN = dataclasses.replace(PRESENTATION, method=lambda fields: "", always=())


def variants(found: pd.DataFrame) -> pd.DataFrame:
    """The relaxed runs at the paper's lam under what it leaves open, with `hard`, the run to compare, and `open`."""
    tests = found[found["split"] == "test"]
    of_why = part_of(found, "why")
    relaxed = of_why[of_why["method"] == "relaxed"]
    hard = PRESENTATION.references(tests[[not is_tuned(str(name)) for name in tests.index]])
    named = _OPEN.settings(relaxed.drop(columns="p")) if len(relaxed) else pd.Series(dtype=object)
    return relaxed.assign(hard=hard[relaxed.index], open=named).sort_values("open", kind="stable")


def _why_lines(found: pd.DataFrame) -> list[str]:
    rows = variants(found)
    if not len(rows):
        return []
    epochs = " or ".join(map(str, sorted({run.summary["epochs"] for run in rows[RUN]})))
    return [
        f"### Why the paper's lam fails: lam = 1e-4 under what is open, three layers, {epochs} epochs, on test",
        "",
        *table(why_cells(rows)),
        "*Medians* over seeds: of hard top-k, of the relaxed one. *Better in*: seeds where the relaxed one errs less.",
        "",
    ]


def why_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """The cells of the table of what the paper leaves open, by run."""
    hard = rows["hard"].map(lambda run: run and interval(run.final("test_error")))
    ours, minus = final(rows, "test_error"), _minus(rows, rows["hard"], "test_error")
    ended = minus.map(lambda value: value is not None and value["mean"] is not None)
    medians = {name: f"{_median(hard[name]):.2f}, {_median(ours[name]):.2f}" for name in rows.index[ended]}
    return pd.DataFrame(
        {
            "what is open": rows["open"].replace("", "as elsewhere"),
            "p": rows["p"].map(p_name),
            "hard top-k, %": hard.map(plus_minus),
            "relaxed, %": ours.map(plus_minus),
            "minus hard": minus.map(signed),
            "medians": [medians.get(name, "-") for name in rows.index],
            "better in": [_better(value) if ends else "-" for value, ends in zip(minus, ended, strict=True)],
            "density in training, %": final(rows, "train_density").map(lambda value: mean(value, scale=100)),
            **outcome(rows),
        }
    )


def _median(value: Numbers) -> float:
    """Over the seeds that have a value."""
    return float(np.median([one for one in value["per_seed"] if one is not None]))


def _better(minus: Numbers) -> str:
    differences = [value for value in minus["per_seed"] if value is not None]
    return f"{sum(value < 0 for value in differences)} of {len(differences)}"


# Findings ------------------------------------------------------------------------------------------------------------

_TUNED = "with lam chosen on validation"


@dataclasses.dataclass(frozen=True)
class _Row:
    """A run on MNIST with all three layers pruned in the paper's setting, and the hard top-k to hold it against."""

    run: Run
    name: str
    hard: Run | None

    @property
    def minus_hard(self) -> Numbers | None:
        return None if self.hard is None else difference(self.run, self.hard, "test_error")

    @property
    def density(self) -> Numbers:
        return interval(self.run.final("train_density"))

    def reached(self, metric: str = "hardened_error") -> Numbers:
        """When the error of hard top-k is reached, by the weights that are kept or by `test_error`."""
        return _reached(self.run, self.hard, metric) if self.hard else {"epochs": interval([None])}

    def after(self, metric: str = "hardened_error") -> str:
        """`after 13.90 ± 0.63 of 30 epochs`; unless all seeds get there, in how many they do."""
        epochs = _epochs(self.reached(metric))
        return epochs if epochs.startswith("in") else f"after {epochs} of {self.run.summary['epochs']} epochs"

    def epochs_of_all(self) -> Numbers | None:
        """The epochs of the weights that are kept, if every seed gets there."""
        epochs: Numbers = self.reached()["epochs"]
        return None if None in epochs["per_seed"] else epochs

    def sooner(self) -> int:
        """1 where every seed gets there before the end of training, else -1."""
        epochs = self.epochs_of_all()
        return 1 if epochs and max(epochs["per_seed"]) < self.run.summary["epochs"] else -1

    def percent(self) -> str:
        return f"{plus_minus(self.density, scale=100)} %"

    def is_a_tenth(self) -> bool:
        """Whether 10.0 % of the weights are not 0, to the first decimal."""
        return self.density["mean"] is not None and abs(self.density["mean"] - 0.1) < 5e-4


@functools.lru_cache(maxsize=2)
def _load(directory: Path) -> pd.DataFrame:
    found, _ = PRESENTATION.load(directory)
    return in_order(found) if len(found) else found


def _rows(results: Path, split: str = "test") -> list[_Row]:
    found = _load(results / "mnist_pruning")
    parts = sections(found, split).items() if len(found) else ()
    chosen = [(section, key) for key, section in parts if (key[0], key[3]) == ("mnist", (1, 2, 3))]
    rows = []
    for section, key in chosen:
        hard = PRESENTATION.references(section)
        names = _settings(section, sections(found, "validation").get(key, section))
        names = _methods(section) + ", " + names
        rows += [_Row(run, names[name], hard[name]) for name, run in section[RUN].items()]
    return rows


def _relaxed(results: Path) -> list[_Row]:
    """The rows of the relaxed top-k that there is a hard one for."""
    return [row for row in _rows(results) if row.run.config["method"] == "relaxed" and row.hard]


def _at_papers(results: Path) -> list[_Row]:
    return [row for row in _rows(results) if is_papers(dotted(row.run.config))]


def _best_on_validation(results: Path) -> _Row | None:
    """The row of the relaxed top-k at another lam whose setting erred least on validation, where the suite chose it.

    Chosen by the error on the test images, the best of several would be judged too well by its own interval.
    """

    def setting(run: Run) -> str:
        read = PRESENTATION.read(dotted(run.config))
        of_method = (*KINDS.of_kinds, *PRESENTATION.setting)
        return repr(sorted((name, value) for name, value in read.items() if is_of(name, of_method)))

    won = making.chosen(results / "mnist_pruning")
    errors = {
        setting(row.run): error
        for row in _rows(results, "validation")
        if row.run.config["method"] == "relaxed" and row.run.name in won and not is_tuned(row.run.name)
        if (error := interval(row.run.final("hardened_error"))["mean"]) is not None
    }
    others = [row for row in _relaxed(results) if setting(row.run) in errors and not is_papers(dotted(row.run.config))]
    return min(others, key=lambda row: errors[setting(row.run)], default=None)


def _least(value: Numbers) -> float:
    """The mean, to order by; where there is none, it comes last."""
    return float("inf") if value["mean"] is None else float(value["mean"])


def accuracy(results: Path) -> Finding | None:
    """Compares relaxed and hard top-k at the end of training."""
    papers, best = [row.minus_hard for row in _at_papers(results)], _best_on_validation(results)
    known = [minus for minus in papers if minus is not None]
    if not papers or len(known) < len(papers):
        return None
    nearest = min(known, key=_least)
    plain = f"At the paper's lam relaxed top-k errs {more_or_less(nearest)} than hard top-k at best"
    tuned = None
    if best:
        plain += f"; {_TUNED} it errs {more_or_less(best.minus_hard)}"
        tuned = Verdict(answer([-sign(best.minus_hard)]), higher_or_lower("error", best.minus_hard))
    tries = variants(_load(results / "mnist_pruning"))
    if len(tries):
        better = sum(sign(value) < 0 for value in _minus(tries, tries["hard"], "test_error"))
        plain += f"; under what the paper leaves open it is clearly better in {better} of {len(tries)} tries"
    return Finding(
        f"{plain}.",
        Verdict(answer([-sign(minus) for minus in known]), higher_or_lower("error", nearest)),
        tuned,
        PAPERS_TASK,
        "points of test error, minus those of hard top-k",
        [Measured.of(row.name, row.minus_hard) for row in _relaxed(results)],
    )


def speed(results: Path) -> Finding | None:
    """Finds the epochs until the largest weights alone, a tenth, have the error that hard top-k ends with."""
    papers, best = _at_papers(results), _best_on_validation(results)
    if not papers or any(row.hard is None for row in papers):
        return None
    first = min(papers, key=lambda row: _least(row.reached()["epochs"]))
    plain = f"At the paper's lam relaxed top-k comes to the error that hard top-k ends with {first.after()}"
    tuned = None
    if best:
        tuned = Verdict(answer([best.sooner()]), best.after())
        plain += f"; {_TUNED} the tenth of the weights that is kept does so {best.after()}, "
        share = plus_minus(best.reached("test_error")["density"], scale=100)
        plain += f"and all that are not 0 ({share} %) {best.after('test_error')}"
    return Finding(
        f"{plain}.",
        Verdict(answer([row.sooner() for row in papers]), first.after()),
        tuned,
        PAPERS_TASK,
        "epochs until the weights that are kept have the error of hard top-k at the end",
        [Measured.of(row.name, row.epochs_of_all(), instead=row.after()) for row in _relaxed(results)],
    )


def density(results: Path) -> Finding | None:
    """Finds the rate of non-zero weights at the end of training."""
    papers, best = _at_papers(results), _best_on_validation(results)
    if not papers:
        return None
    plain = f"At the paper's lam {papers[0].percent()} of the weights are not 0"
    tuned = None
    if best:
        plain += f"; {_TUNED} that is so only at the end of training, with {best.percent()}"
        tuned = Verdict(in_every_case([best.is_a_tenth()]), f"{best.percent()}, at the end")
    return Finding(
        f"{plain}.",
        Verdict(in_every_case(row.is_a_tenth() for row in papers), papers[0].percent()),
        tuned,
        PAPERS_TASK,
        "% of the weights that are not 0 at the end of training",
        [Measured.of(row.name, row.density, scale=100) for row in _relaxed(results)],
    )


def optimal_transport(results: Path) -> Finding | None:
    """Compares hard top-k with the gradient of optimal transport and the relaxed operators, as the paper does."""
    papers, best, relaxed = _at_papers(results), _best_on_validation(results), _relaxed(results)
    row = next((row for row in _rows(results) if row.run.config["method"] == "ot_straight_through"), None)
    if not papers or row is None:
        return None
    minus = {other.run.name: difference(row.run, other.run, "test_error") for other in [*papers, *relaxed]}
    at_papers = [minus[other.run.name] for other in papers]
    nearest = min(at_papers, key=lambda value: abs(_least(value)))
    error = plus_minus(interval(row.run.final("test_error")))
    plain = f"With the gradient of optimal transport a hard top-k errs by {error} % (the paper: {PAPER_OT_ERROR} %), "
    plain += f"{more_or_less(nearest)} than the nearer relaxed top-k at the paper's lam"
    tuned = None
    if best:
        to_best = minus[best.run.name]
        plain += f", {more_or_less(to_best)} than that {_TUNED}"
        tuned = Verdict(in_every_case([_is_level(to_best)]), higher_or_lower("error", to_best))
    if row.hard:
        plain += f"; hard top-k itself: {more_or_less(row.minus_hard)} with that gradient"
    return Finding(
        f"{plain}.",
        Verdict(in_every_case(map(_is_level, at_papers)), higher_or_lower("error", nearest)),
        tuned,
        PAPERS_TASK,
        "points of test error of a hard top-k with the gradient of optimal transport",
        [
            *(Measured.of(f"minus {other.name}", minus[other.run.name]) for other in relaxed),
            Measured.of("minus hard top-k", row.minus_hard),
        ],
    )


def _is_level(difference: Numbers) -> bool:
    """Whether there are seeds to compare, and their interval holds 0."""
    return difference["interval95"] is not None and not sign(difference)


# Pages and the command -----------------------------------------------------------------------------------------------


def blocks(results: Path) -> dict[str, list[str]]:
    """The lines of the blocks of the results pages that are made of the runs, by name; none where there are no runs."""
    found, vit = _load(results / "mnist_pruning"), _load(results / "cifar100_pruning")
    if not (len(found) and len(vit)):
        return {}
    key, section = next(iter(sections(found, "test").items()))
    paper = paper_cells(section, sections(found, "validation")[key])
    paper["method"] = [", ".join(filter(None, pair)) for pair in zip(paper["method"], paper["setting"], strict=True)]
    columns = ("method", "test error, %", "minus hard", "density in training, %", "hardened epochs to it")
    main = [PRESENTATION.headline(dotted(run.config)) for run in section[RUN]]
    return {
        "pruning in the paper's setting": table(paper[main], columns=columns, text=1)[:-1],
        "methods at their best": _by_density(found),
        "methods on the transformer": _by_density(vit),
    }


def _by_density(found: pd.DataFrame) -> list[str]:
    """The errors of every method at its best, by the share of the whole network's weights that is kept."""
    of_network = [section for (_, budget, _), section in cells(found).items() if budget == 0]
    columns = {f"{100 * section['density'].iloc[0]:g} %": section for section in of_network}
    shown = {
        share: pd.Series(_errors(section).map(plus_minus).to_numpy(), index=kinds(section))
        for share, section in columns.items()
    }
    errors = pd.DataFrame(shown).reindex(kinds(pd.concat(of_network)).unique()).fillna("-")
    return table(errors.reset_index(names="method"), text=1)[:-1]


def make(directory: Path) -> list[Path]:
    """Makes the tables and figures of the runs below a directory; returns the files written."""
    return making.make(PRESENTATION, tables, lambda found: report_figures.draw(in_order(found)), directory)


if __name__ == "__main__":
    console.run(lambda arguments: making.main(make, "mnist_pruning", arguments))
