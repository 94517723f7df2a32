"""Tables of the READMEs that are made of the results, each between two comments that name it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.cifar100_vit.report import claims as fine_tuning_claims
from experiments.cifar100_vit.report import lines as fine_tuning
from experiments.cifar100_vit.report import verdict
from experiments.core.record.files import read_object, write_atomically
from experiments.core.report.finding import Claim, Finding, Verdict
from experiments.core.report.markdown import line
from experiments.mnist_pruning.report import best, why
from scripts.bench import programs
from scripts.bench.case import find
from scripts.bench.contestants import BOTH, FORWARD, MODES
from scripts.compare.workdirs import RESULTS

# Blocks of READMEs that tell of fine-tuning on features, and the results that they are made of.
FEATURES = {
    "fine-tuning on features": "cifar100_pretrained",
    "fine-tuning of the last block": "cifar100_last_block",
}
# Of the benchmark of masks: the record that the READMEs show.
RECORD = "cpu-amd-epyc-2c.json"
_HEADER = ("claim", "as the paper sets it", "tuned by us", "measured on")
_PEER = "jaxopt box section"  # which knows p = 2 alone
_MASKS = (
    ("`topk_mask`, p = 2", "topk_mask p=2", FORWARD),
    ("with gradient", "topk_mask p=2", BOTH),
    ("`topk_mask`, p = 4/3", "topk_mask p=4/3", FORWARD),
    ("with gradient", "topk_mask p=4/3", BOTH),
)
_HARD = ("`hard_topk_mask`", "hard_topk_mask", FORWARD)
_PEERS = (("jaxopt, p = 2", _PEER, FORWARD), ("with gradient", _PEER, BOTH))
_SPEED = {"speed": (*_MASKS, *_PEERS), "speed in full": (*_MASKS, _HARD, *_PEERS)}


def update(claims: Sequence[Claim], findings: Sequence[Finding | None]) -> list[Path]:
    """Writes the tables into the READMEs; returns the paths of those that changed.

    Args:
      claims: of the paper.
      findings: on them, in the committed results: no other directory has a README to show it.
    """
    changed = []
    made = {"claims": claims_table(claims, findings), **speed_tables()}
    made |= {block: features_lines(name) for block, name in FEATURES.items()} | pruning_lines()
    for path in (RESULTS.parent / "README.md", *sorted(RESULTS.glob("*/README.md"))):
        before = path.read_text()
        after = fill(before, made)
        if after != before:
            write_atomically(path, after)
            changed.append(path)
    return changed


def fill(text: str, tables: Mapping[str, Sequence[str]]) -> str:
    """The text, with each table where `<!-- NAME: ... -->` and `<!-- end of NAME -->` are."""
    for name, lines in tables.items():
        body = "\n".join([*lines, ""])
        marks = rf"(<!-- {re.escape(name)}: [^\n]*-->\n).*?(<!-- end of {re.escape(name)} -->)"
        if found := re.search(marks, text, flags=re.DOTALL):
            text = text[: found.end(1)] + body + text[found.start(2) :]
    return text


def claims_table(claims: Sequence[Claim], findings: Sequence[Finding | None]) -> list[str]:
    """A row for each claim."""
    rows = [claim_row(claim, finding) for claim, finding in zip(claims, findings, strict=True)]
    return [line(_HEADER), line(["---"] * len(_HEADER)), *rows]


def claim_row(claim: Claim, finding: Finding | None) -> str:
    """The claim, linked to where it is told in full; two answers; what they were measured on."""
    cells = [_answer(finding.as_stated), _answer(finding.tuned), finding.on] if finding else ["not measured", "-", "-"]
    return line([f"[{claim.short}]({claim.pages[0]})", *(cell.replace("|", r"\|") for cell in cells)])


def _answer(verdict: Verdict | None) -> str:
    """`**yes**: 5.07 ± 0.07 points`, in which no line ends within the number."""
    if verdict is None:
        return "-"
    number = verdict.number.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")
    return f"**{verdict.answer}**: {number}" if number else verdict.answer


def features_lines(name: str) -> list[str]:
    """Finding and verdicts of results on features of a frozen network, by their name, and the tables of their test."""
    path = RESULTS / name / "table.json"
    numbers = read_object(path, "put back a copy of it, or make it again")
    finding = fine_tuning_claims.accuracy(RESULTS)
    plain = [f"- **{finding.plain}**"] if finding else []
    return [*plain, *verdict.lines(numbers), "", *fine_tuning.of_test(numbers)[:-1]]


def pruning_lines() -> dict[str, list[str]]:
    """Sentences on pruning: on the settings of every method, and on the paper's lam."""
    numbers = read_object(RESULTS / "mnist_pruning" / "table.json", "put back a copy of it, or make it again")
    return {"settings of methods": best.told(numbers), "variants": why.told(numbers)}


def speed_tables() -> dict[str, list[str]]:
    """Times of masks over that of `lax.top_k`, in short and in full; and what their programs cost."""
    record = read_object(RESULTS / "bench" / RECORD, "put back a copy of it, or make it again")
    tables = {name: _ratios(record["cases"], columns) for name, columns in _SPEED.items()}
    return tables | {"programs": _programs(record["programs"])}


def _programs(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Equations of every program, and seconds to trace and lower it, and to compile it."""
    cells = []
    for name in dict.fromkeys(row["program"] for row in rows):
        found = [programs.find(rows, name, mode, way) for way in programs.WAYS for mode in MODES]
        cells.append(line([f"`{name}`", *("-" if row is None else _cost(row) for row in found)]))
    columns = [f"{way}, {mode}" for way in ("k and lam known", "traced") for mode in ("forward", "with gradient")]
    return [line(["", *columns]), line(["---"] + ["---:"] * len(columns)), *cells]


def _cost(row: dict[str, Any]) -> str:
    return f"{row['equations']}: {row['traced_s'] + row['lowered_s']:.2f} s + {row['compiled_s']:.2f} s"


def _ratios(cases: Sequence[dict[str, Any]], columns: Sequence[tuple[str, str, str]]) -> list[str]:
    rows = []
    for case in cases:
        found = [find(case["results"], contestant, mode) for _, contestant, mode in columns]
        ratios = ["-" if row is None else f"{row['ratio_to']['lax.top_k']:.2g}" for row in found]
        rows.append(line([f"{case['batch']}, {case['n']}, {case['k']}", *ratios]))
    return [line(["batch, n, k", *(name for name, _, _ in columns)]), line(["---"] + ["---:"] * len(columns)), *rows]
