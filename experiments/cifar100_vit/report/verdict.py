"""What the runs on features say of the paper's claim, in sentences whose numbers and verdicts follow from the table."""

from collections.abc import Sequence

from experiments.cifar100_vit.report.claims import BLOCKS, PAPERS
from experiments.cifar100_vit.report.lines import PAIRED_K, paired_cell
from experiments.core.report.finding import Numbers, sign


def lines(numbers: Numbers) -> list[str]:
    """A list in Markdown: the paper's losses in the blocks there are, then what is ahead of cross-entropy."""
    found = []
    for block, where in BLOCKS.items():
        for row in (row for row in numbers.get(block, ()) if row["loss"] in PAPERS):
            differences = [row["minus_cross_entropy"][str(k)] for k in PAIRED_K]
            shown = ", ".join(f"top-{k} {paired_cell(value)}" for k, value in zip(PAIRED_K, differences, strict=True))
            found.append(
                f"- {where.capitalize()}, {row['loss']}: **{_word(differences)} cross-entropy** ({shown} points)."
            )
    for k in PAIRED_K:
        ahead = [
            f"{row['loss']} ({paired_cell(row['minus_cross_entropy'][str(k)])})"
            for row in numbers["final"]
            if beyond_both(row["minus_cross_entropy"][str(k)])
        ]
        found.append(f"- Ahead of tuned cross-entropy in top-{k} by more than both intervals: {_listed(ahead)}.")
    return found


def beyond_both(difference: Numbers | None) -> bool:
    """Whether a difference lies above its intervals over seeds and over images."""
    return difference is not None and sign(difference) > 0 and difference["mean"] > difference["interval95_over_images"]


def _word(differences: Sequence[Numbers | None]) -> str:
    """Of the differences at several k, by their intervals over seeds."""
    signs = set(map(sign, differences))
    return "ahead of" if signs == {1} else "behind" if signs == {-1} else "not clearly apart from"


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) if names else "none"
