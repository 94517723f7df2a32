"""The blocks of the READMEs that are made of the results, each between two comments that name it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cifar100_vit.report import claims as fine_tuning_claims
from experiments.cifar100_vit.report import lines as fine_tuning
from experiments.cifar100_vit.report import verdict
from experiments.core.errors import UsageError
from experiments.core.record.files import read_object, write_atomically
from experiments.core.report.finding import Claim, Finding, Verdict
from experiments.core.report.markdown import grid, line
from experiments.mnist_pruning.report import best, why
from scripts.report import timings

# Blocks of READMEs that tell of fine-tuning on features, and the results that they are made of.
FEATURES = {
    "fine-tuning on features": "cifar100_pretrained",
    "fine-tuning of the last block": "cifar100_last_block",
}
_HEADER = ("claim", "as the paper sets it", "tuned by us", "measured on")
_BLOCK = re.compile(r"(<!-- (?P<name>[^:\n]+): [^\n]*-->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of all blocks but the claims', by name: every room of results makes its own."""
    made: dict[str, list[str]] = {}
    for room in (timings.blocks, _fine_tuning, _pruning):
        made |= room(results)
    return made


def update(results: Path, made: Mapping[str, Sequence[str]]) -> list[Path]:
    """Writes the blocks into the READMEs of the results, of the operators and of the repository that name them.

    Args:
      results: the directory of committed results.
      made: the lines of each block, by its name.

    Returns:
      The paths of the READMEs that changed.
    """
    changed = []
    for path in (
        results.parent / "README.md",
        results.parent / "ops" / "README.md",
        *sorted(results.glob("*/README.md")),
    ):
        before = path.read_text()
        after = fill(before, made)
        if after != before:
            write_atomically(path, after)
            changed.append(path)
    return changed


def fill(text: str, made: Mapping[str, Sequence[str]]) -> str:
    """Returns the text, each block between `<!-- NAME: ... -->` and `<!-- end of NAME -->` written again.

    Raises:
      UsageError: the text has a block that nobody makes, whose numbers would go out of date.
    """

    def again(found: re.Match[str]) -> str:
        if found["name"] not in made:
            raise UsageError(f"nobody makes the block {found['name']!r} of a README")
        return found[1] + "\n".join([*made[found["name"]], ""]) + found[3]

    return _BLOCK.sub(again, text)


def claims_table(claims: Sequence[Claim], findings: Sequence[Finding | None]) -> list[str]:
    """Returns the lines of a table with a row for each claim."""
    rows = [claim_row(claim, finding) for claim, finding in zip(claims, findings, strict=True)]
    return [*grid(_HEADER, [], text=len(_HEADER)), *rows]


def claim_row(claim: Claim, finding: Finding | None) -> str:
    """Writes the claim, linked to where it is told in full, two answers, and what they were measured on."""
    cells = [_answer(finding.as_stated), _answer(finding.tuned), finding.on] if finding else ["not measured", "-", "-"]
    link = f"[{claim.short}]({claim.pages[0].removesuffix('/README.md')})"
    return line([link, *(cell.replace("|", r"\|") for cell in cells)])


def _answer(verdict: Verdict | None) -> str:
    """Writes `**yes**: 5.07 ± 0.07 points`, in which no line ends within the number."""
    if verdict is None:
        return "-"
    number = verdict.number.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")
    return f"**{verdict.answer}**: {number}" if number else verdict.answer


def _fine_tuning(results: Path) -> dict[str, list[str]]:
    """Finding and verdicts of results on features of a frozen network, and the tables of their test."""
    made = {}
    for block, name in FEATURES.items():
        numbers = read_object(results / name / "table.json", "put back a copy of it, or make it again")
        finding = fine_tuning_claims.accuracy(results)
        plain = [f"- **{finding.plain}**"] if finding else []
        made[block] = [*plain, *verdict.lines(numbers), "", *fine_tuning.of_test(numbers)[:-1]]
    return made


def _pruning(results: Path) -> dict[str, list[str]]:
    """Sentences on pruning: on the settings of every method, and on the paper's lam."""
    numbers = read_object(results / "mnist_pruning" / "table.json", "put back a copy of it, or make it again")
    return {"settings of methods": best.told(numbers), "variants": why.told(numbers)}
