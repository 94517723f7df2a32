"""The report of `make fuzz`."""

import os


def pytest_terminal_summary(terminalreporter):
    if not os.environ.get("FUZZ"):
        return
    found = (report for reports in terminalreporter.stats.values() for report in reports)
    reports = [report for report in found if getattr(report, "when", "") == "call"]
    tallies = [value for report in reports for name, value in report.user_properties if name == "problems"]
    write = terminalreporter.write_line
    terminalreporter.section("problems, and the worst error of a right answer in units of rounding")
    write(f"{'operator':24} {'tried':>8} {'wrong':>6} {'value':>7} {'d/dx':>7} {'d/dk':>7} {'d/dlam':>7}")
    operators = sorted({tally["operator"] for tally in tallies})
    for operator in [*operators, "all"]:
        its = [tally for tally in tallies if operator in (tally["operator"], "all")]
        tried, wrong = sum(tally["tried"] for tally in its), sum(len(tally["failures"]) for tally in its)
        worst = (
            max((t["worst"][name] for t in its if name in t["worst"]), default=None)
            for name in ("value", "x", "k", "lam")
        )
        errors = " ".join(f"{error:7.2f}" if error is not None else f"{'-':>7}" for error in worst)
        write(f"{operator:24} {tried:8} {wrong:6} {errors}")
    for failure in (failure for tally in tallies for failure in tally["failures"]):
        said, _, problem = failure.partition(": PROBLEM=")
        write(f"make fuzz PROBLEM={problem}  # {said}")
