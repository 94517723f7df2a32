"""Findings on the fine-tuning experiment. Without ViT-B/16 they are of a stand-in."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cifar100_vit.report.lines import SHOWN_K
from experiments.core.report.benchmarks import first_on_accelerator, name_of, on_accelerator
from experiments.core.report.finding import (
    NOT_POSSIBLE,
    PAPERS_TASK,
    STAND_IN,
    Answer,
    Finding,
    Measured,
    Numbers,
    Verdict,
    answer,
    higher_or_lower,
    in_every_case,
    read,
    sign,
)

# The two losses of Figure 6, as tables call them.
_TARGET = ", the paper's"
PAPERS = (f"top-3, p = 2{_TARGET}", f"top-3, p = 4/3{_TARGET}")
# Of tables on features, and what the settings in them are.
BLOCKS = {"final_at_paper_rates": "at the paper's learning rates", "final": "each loss at its own setting"}
# Of a step with cross-entropy: 9.7 and 10 seconds, of 9.5.
PAPER_OVERHEAD = {"top-3, p = 2": 9.7 / 9.5, "top-3, p = 4/3": 10 / 9.5}


def accuracy(results: Path) -> Finding | None:
    """The top-3 losses against cross-entropy, for several k: of the transformer, or if that is small on features."""
    transformer = read(results / "cifar100_vit" / "table.json")
    head = read(results / "cifar100_pretrained" / "table.json")
    if head and (transformer is None or transformer["stand_in"]):
        last_block = read(results / "cifar100_last_block" / "table.json")
        tables = {"head": head} | ({"last block": last_block} if last_block and _answers(last_block) else {})
        return _finding(tables, STAND_IN) if _answers(head) else None
    if transformer is None or not _papers(transformer["final"]):
        return None
    return _finding({"transformer": transformer}, STAND_IN if transformer["stand_in"] else PAPERS_TASK)


def _finding(tables: Mapping[str, Numbers], on: str) -> Finding:
    """Two answers: at the paper's learning rates, and each loss at its own; by what was trained."""
    by_block = {block: {name: _papers(table.get(block, ())) for name, table in tables.items()} for block in BLOCKS}
    if on == PAPERS_TASK and not any(by_block["final_at_paper_rates"].values()):
        by_block = {"final_at_paper_rates": by_block["final"], "final": {}}
    verdicts = {block: _verdict(by_name) for block, by_name in by_block.items()}
    plain = "; ".join(
        f"{where}, {', '.join(_count(rows, name) for name, rows in by_block[block].items())}"
        for block, where in BLOCKS.items()
        if verdicts[block]
    )
    return Finding(
        f"Against cross-entropy in top-k accuracy the top-3 losses, {plain}.",
        verdicts["final_at_paper_rates"] or NOT_POSSIBLE,
        verdicts["final"],
        on,
        "points of top-3 accuracy, minus those of cross-entropy",
        [
            Measured.of(f"{where}, {name}: {row['loss'].removesuffix(_TARGET)}", _differences(row)[3])
            for block, where in BLOCKS.items()
            for name, rows in by_block[block].items()
            for row in rows
        ],
    )


def _verdict(by_name: Mapping[str, Sequence[Numbers]]) -> Verdict | None:
    """By all k and both losses; the number is of top-3 accuracy at best, where mixed for each part that was trained."""
    rows = [row for rows in by_name.values() for row in rows]
    if not rows:
        return None
    found: Answer = answer(list(map(sign, _all(rows))))
    if found == "mixed":
        return Verdict(found, ", ".join(f"{_best(rows)['mean']:+.2f} {name}" for name, rows in by_name.items()))
    return Verdict(found, higher_or_lower("accuracy", _best(rows)))


def _best(rows: Sequence[Numbers]) -> Numbers:
    """The largest difference of top-3 accuracy."""
    found = [value for row in rows if (value := _differences(row)[3]) and value["mean"] is not None]
    return max(found, key=lambda value: float(value["mean"]), default={"mean": None, "interval95": None})


def _count(rows: Sequence[Numbers], name: str) -> str:
    signs = list(map(sign, _all(rows)))
    return f"win {signs.count(1)} and lose {signs.count(-1)} of {len(signs)} comparisons ({name})"


def _all(rows: Sequence[Numbers]) -> list[Numbers | None]:
    return [value for row in rows for value in _differences(row).values()]


def _answers(table: Numbers) -> bool:
    """Whether it has the paper's losses in every block: a suite that goes on has not."""
    return all(_papers(table.get(block, ())) for block in BLOCKS)


def _papers(rows: Sequence[Numbers]) -> list[Numbers]:
    return [row for row in rows if row["loss"] in PAPERS]


def _differences(row: Numbers) -> dict[int, Numbers | None]:
    return {k: row["minus_cross_entropy"].get(str(k)) for k in SHOWN_K}


def step_times(results: Path) -> Finding | None:
    """The time that the losses take by themselves, over that of a step: on accelerators first."""
    record = first_on_accelerator(results, "losses")
    if record is None:
        return None
    extra = {name: record["losses"][name]["one_plus_extra_over_step"] for name in PAPER_OVERHEAD}
    settings, most = record["settings"], f"{100 * (max(extra.values()) - 1):.2g} % of a step"
    verdict = Verdict(in_every_case(ratio <= PAPER_OVERHEAD[name] for name, ratio in extra.items()), most)
    papers = on_accelerator(record) and (settings["variant"], settings["size"]) == ("B/16", 384)
    return Finding(
        f"By the time of the losses alone a top-3 loss adds {most} of ViT-{settings['variant']} at {settings['size']} "
        "pixels at most; in the paper it adds 2 % (p = 2) and 5 % (p = 4/3).",
        verdict if papers else NOT_POSSIBLE,
        None if papers else verdict,
        name_of(record),
        "% that a step takes longer than with cross-entropy",
        [Measured(name, 100 * (ratio - 1)) for name, ratio in extra.items()],
    )
