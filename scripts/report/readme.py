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
from experiments.vmoe import report as vmoe
from experiments.vmoe_clusters import report as clusters
from scripts.bench import isotonic, programs
from scripts.bench.case import find
from scripts.bench.contestants import BOTH, FORWARD, MODES
from scripts.compare.workdirs import RESULTS

# Blocks of READMEs that tell of fine-tuning on features, and the results that they are made of.
FEATURES = {
    "fine-tuning on features": "cifar100_pretrained",
    "fine-tuning of the last block": "cifar100_last_block",
}
# The machine of the timings that the READMEs show, and their records.
RECORD = "cpu-amd-epyc-2c.json"
_RECORDS = ("", "isotonic-", "exactness-")
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
_SHORT, _FULL = (*_MASKS, _PEERS[0]), (*_MASKS, _HARD, *_PEERS)
_SHOWN = ((12800, 400), (128, 1000), (1, 25_088), (1, 10**6))  # in short: rows of 1e7 are as those of 1e6


def update(claims: Sequence[Claim], findings: Sequence[Finding | None]) -> list[Path]:
    """Writes the tables into the READMEs; returns the paths of those that changed.

    Args:
      claims: of the paper.
      findings: on them, in the committed results: no other directory has a README to show it.
    """
    changed = []
    made = {"claims": claims_table(claims, findings), **speed_tables()}
    made |= {block: features_lines(name) for block, name in FEATURES.items()} | pruning_lines()
    made |= vmoe.blocks(RESULTS) | clusters.blocks(RESULTS)
    root = RESULTS.parent
    for path in (root / "README.md", root / "ops" / "README.md", *sorted(RESULTS.glob("*/README.md"))):
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
    return line(
        [f"[{claim.short}]({claim.pages[0].removesuffix('/README.md')})", *(cell.replace("|", r"\|") for cell in cells)]
    )


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
    """Times of masks over that of `lax.top_k`, in short and in full; what their programs cost; and the solvers."""
    record, times, errors = (
        read_object(RESULTS / "bench" / f"{name}{RECORD}", "put back a copy of it, or make it again")
        for name in _RECORDS
    )
    cases, lam, rows = record["cases"], times["settings"]["lam"], isotonic.ratios(times["rows"])
    head, dashes, *shown = _ratios([case for case in cases if (case["batch"], case["n"]) in _SHOWN], _SHORT)
    if slower := {n: ratio for n, ratio in rows.items() if ratio > 1}:
        range_ = f"{min(slower.values()):.2g} to {max(slower.values()):.2g}"
        name = f"1, {min(slower)} to {max(slower)}, lam = {lam:g}"
        shown.insert(0, line([name, range_, *["-"] * (len(_SHORT) - 1)]))
    return {
        "speed": [head, dashes, *shown],
        "speed in full": _ratios(cases, _FULL),
        "slower": _slower(cases, rows, lam),
        "programs": _programs(record["programs"]),
        "solvers": isotonic.times_table(times["rows"], errors["rows"]),
        "exactness": isotonic.errors_table(errors["rows"]),
    }


def _slower(cases: Sequence[dict[str, Any]], single: dict[int, float], lam: float) -> list[str]:
    """By size, how many measurements took longer than `lax.top_k`, and the longest; then the range of all others."""
    ratios = {f"1, {n}, {isotonic.case_of(n).k}": {f"topk_mask p=2 lam={lam:g}": ratio} for n, ratio in single.items()}
    for case in cases:
        ratios.setdefault(_shape(case), {}).update(
            (f"{row['contestant']} {row['mode']}", row["ratio_to"]["lax.top_k"])
            for row in case["results"]
            if row["contestant"].startswith(("topk_mask", "topk_mag"))
        )
    lines = [line(["batch, n, k", "slower in", "at most", "which is"]), line(["---", "---:", "---:", "---"])]
    for shape, found in ratios.items():
        if slower := sum(ratio > 1 for ratio in found.values()):
            worst = max(found, key=found.__getitem__)
            lines.append(line([shape, f"{slower} of {len(found)}", f"{found[worst]:.2g}", f"`{worst}`"]))
    others = [ratio for found in ratios.values() for ratio in found.values() if ratio <= 1]
    return [*lines, "", f"All other {len(others)} ratios are {min(others):.2g} to {max(others):.2g}."]


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
        rows.append(line([_shape(case), *ratios]))
    return [line(["batch, n, k", *(name for name, _, _ in columns)]), line(["---"] + ["---:"] * len(columns)), *rows]


def _shape(case: dict[str, Any]) -> str:
    return f"{case['batch']}, {case['n']}, {case['k']}"
