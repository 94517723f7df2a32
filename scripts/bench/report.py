"""The results as text."""

from collections.abc import Iterator
from typing import Any

from scripts.bench import programs
from scripts.bench.case import BASELINES, find
from scripts.bench.contestants import BOTH, FORWARD, MODES


def lines(results: dict[str, Any]) -> Iterator[str]:
    """Everything a run found, line by line."""
    for case in results["cases"]:
        yield from _case(case)
    yield from _growth(results["scaling"])
    yield from programs.lines(results.get("programs", []))
    yield from _memory(results["memory"])
    for part, reason in results.get("failed", {}).items():
        yield f"{part} failed: {reason}"
    yield from _targets(results["targets"])
    for name, peer in results["peers"].items():
        if peer["status"] in ("missing", "unusable"):
            yield f"peer {name} is {peer['status']}: {peer['reason']}"


def _case(case: dict[str, Any]) -> Iterator[str]:
    yield f"batch {case['batch']}, n {case['n']}, k {case['k']}: median ms [quartiles], and its ratio to " + ", ".join(
        BASELINES
    )
    rows = case["results"]
    header = " | ".join(f"{mode:^44}" for mode in MODES)
    yield f"  {'':<26} {header} | error: output, gradient"
    for name in dict.fromkeys(row["contestant"] for row in rows):
        cells = " | ".join(_cell(find(rows, name, mode)) for mode in MODES)
        mine = [row for row in rows if row["contestant"] == name]
        yield f"  {name:<26} {cells} | {_remark(mine)}".rstrip()
    yield ""


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return f"{'-':>10}{'':34}"
    spread = f"[{row['lower_quartile_ms']:.4g}, {row['upper_quartile_ms']:.4g}]"
    ratios = "".join(f"{_number(row['ratio_to'][name]):>8}" for name in BASELINES)
    return f"{row['median_ms']:>10.4g} {spread:<17}{ratios}"


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def _remark(rows: list[dict[str, Any]]) -> str:
    row = rows[0]
    if row["status"] != "timed":
        return f"{row['status']}: {row['reason']}"
    errors = [row.get("max_abs_error") for row in rows if row["mode"] == FORWARD]
    errors += [row.get("relative_gradient_error") for row in rows if row["mode"] == BOTH]
    note = ", inexact by design" if row["inexact_by_design"] else ""
    return " ".join("-" if error is None else f"{error:.0e}" for error in errors) + note


def _growth(growth: dict[str, Any]) -> Iterator[str]:
    if not growth:
        return
    yield f"{growth['contestant']}, one row, k = n / 10: median ms"
    yield f"  {'n':<24} " + " ".join(f"{n:>10.0e}" for n in growth["n"]) + "   slope, and from size to size"
    for mode in MODES:
        times = " ".join(f"{time:>10.4g}" for time in growth["median_ms"][mode])
        local = ", ".join(f"{slope:.2f}" for slope in growth["local_slope"][mode])
        yield f"  {mode:<24} {times}   {growth['slope'][mode]:.3f}: {local}"
    yield ""


def _memory(memory: list[dict[str, Any]]) -> Iterator[str]:
    if not memory:
        return
    yield f"extra memory of a call in arrays of n = {memory[0]['n']:.0e}: as compiled, as measured"
    for entry in memory:
        found = [(mode, entry[mode]) for mode in MODES if mode in entry]
        cells = [f"{mode} {_number(used['compiled'])}, {_number(used['measured'])}" for mode, used in found]
        cells += [entry["error"]] if "error" in entry else []
        yield f"  {entry['contestant']:<24} " + "   ".join(cells)
    yield ""


def _targets(targets: list[dict[str, Any]]) -> Iterator[str]:
    yield "targets"
    measured = [target for target in targets if target["status"] != "not measured"]
    for target in measured:
        yield f"  {target['status']}  {target['measured']:>8.3g} (limit {target['limit']:g})  {target['target']}"
    passed = sum(target["status"] == "PASS" for target in measured)
    yield f"  {passed} of {len(measured)} hold; {len(targets) - len(measured)} not measured in this run"
