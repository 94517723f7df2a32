"""A small chart of the numbers of a finding: a dot for each, with its interval, and a line at 0."""

import html

from experiments.core.report.finding import Finding, Measured

_WIDTH, _ROW, _MARGIN = 420, 44, 12


def digits(value: float | None) -> str:
    """Four significant digits, of what is not rounding; empty for no number."""
    return "" if value is None else f"{round(value, 9):.4g}"


def of(finding: Finding) -> str:
    """SVG, in the colours of the page."""
    drawn = [one for one in finding.measured if one.mean is not None]
    ends = [0.0] + [end for one in drawn for end in _ends(one)]
    low, high = min(ends), max(ends)
    width = (high - low) or 1.0

    def place(value: float) -> str:
        return f"{_MARGIN + (_WIDTH - 2 * _MARGIN) * (value - low) / width:.1f}"

    height = _ROW * max(1, len(drawn)) + _MARGIN
    rows = []
    for i, one in enumerate(drawn):
        y, (start, end) = _ROW * i + 32, _ends(one)
        rows.append(
            f'<text x="{_MARGIN}" y="{y - 14}" fill="currentColor">{html.escape(one.name)}: {digits(one.mean)}</text>'
            f'<line x1="{place(start)}" x2="{place(end)}" y1="{y}" y2="{y}" stroke="var(--accent)" stroke-width="3"/>'
            f'<circle cx="{place(one.mean or 0.0)}" cy="{y}" r="5" fill="var(--accent)"/>'
        )
    zero = f'<line x1="{place(0)}" x2="{place(0)}" y1="0" y2="{height}" stroke="var(--control)"/>'
    label = html.escape(f"{finding.unit}: " + ", ".join(f"{one.name} {digits(one.mean)}" for one in drawn), quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{zero}{"".join(rows)}</svg>'


def _ends(one: Measured) -> tuple[float, float]:
    mean, half = one.mean or 0.0, one.half or 0.0
    return mean - half, mean + half
