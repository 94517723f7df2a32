"""The tables of the READMEs that follow from results: blocks, each between two comments that name it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.cifar100_vit import report as fine_tuning
from experiments.core.errors import UsageError
from experiments.core.record.files import write_atomically
from experiments.core.report.finding import Finding, Verdict
from experiments.core.report.markdown import grid, line
from experiments.learned_masks import report as learned_masks
from experiments.mnist_pruning import report as pruning
from experiments.sparse_attention import report as sparse_attention
from experiments.vmoe import report as vmoe
from experiments.vmoe_clusters import report as clusters
from scripts import networks
from scripts.report import again, benchmarks, compute
from scripts.report.claims import Claim

_ANSWERS = ("claim, and what decides it", "with the paper's settings", "as one would use it", "measured on")
_BLOCK = re.compile(r"(<!-- (?P<name>[^:\n]+): [^\n]*-->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of all blocks except the claims', by name."""
    made: dict[str, list[str]] = {}
    tools = (again, benchmarks, compute, networks)
    for report in (*tools, pruning, learned_masks, fine_tuning, vmoe, clusters, sparse_attention):
        made |= report.blocks(results)
    return made


def update(results: Path, made: Mapping[str, Sequence[str]]) -> list[Path]:
    """Writes blocks into all READMEs that name them; returns the paths of the changed ones."""
    changed = []
    root = results.parent
    for path in (root / "README.md", root / "ops" / "README.md", *sorted(results.rglob("README.md"))):
        before = path.read_text()
        after = fill(before, made)
        if after != before:
            write_atomically(path, after)
            changed.append(path)
    return changed


def fill(text: str, made: Mapping[str, Sequence[str]]) -> str:
    """Returns the text with new lines in each block, from `<!-- NAME: ... -->` to `<!-- end of NAME -->`.

    Raises:
      UsageError: no report makes a block of the text, so its numbers would go out of date.
    """

    def again(match: re.Match[str]) -> str:
        if match["name"] not in made:
            raise UsageError(f"nobody makes the block {match['name']!r} of a README")
        return match[1] + "\n".join([*made[match["name"]], ""]) + match[3]

    return _BLOCK.sub(again, text)


def claims_table(claims: Sequence[Claim], findings: Sequence[Finding | None]) -> list[str]:
    """Returns the lines of the table with our answers, a row for each claim."""
    rows = [claim_row(claim, finding) for claim, finding in zip(claims, findings, strict=True)]
    return [*grid(_ANSWERS, [], text=len(_ANSWERS)), *rows]


def claim_row(claim: Claim, finding: Finding | None) -> str:
    """Returns the row of a claim: a link to its page, two answers, and what they were measured on."""
    cells = [_answer(finding.as_stated), _answer(finding.tuned), finding.on] if finding else ["not measured", "-", "-"]
    return line([f"[{claim.short}]({claim.page}): {claim.by}", *(cell.replace("|", r"\|") for cell in cells)])


def _answer(verdict: Verdict | None) -> str:
    """Writes `**holds**: error 5.07 ± 0.07 lower`, with no-break spaces within the number."""
    if verdict is None:
        return "-"
    number = verdict.told.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")
    return f"**{verdict.answer}**: {number}" if number else verdict.answer
