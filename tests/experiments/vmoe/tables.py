"""Tables in Markdown, read back."""

from collections.abc import Sequence


def read(lines: Sequence[str], heading: str) -> list[dict[str, str]]:
    """The rows of the table below a heading, cells by column."""
    below = lines[lines.index(f"### {heading}") :]
    start = next(number for number, line in enumerate(below) if line.startswith("|"))
    rows = []
    for line in below[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")])
    header, _, *cells = rows
    return [dict(zip(header, row, strict=True)) for row in cells]
