"""Findings on times, from the benchmarks of an accelerator if there are any, else of a CPU; and tables of two machines.

Each machine has a file in results/bench, and each benchmark a section of it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.files import read_object
from experiments.core.report.finding import Finding, Numbers, Verdict, of_fact, where_possible
from experiments.core.report.markdown import grid
from experiments.sparse_attention import report as selectors

Rows = Sequence[dict[str, Any]]

SAME = 1e-3  # a mask counts as exact if no entry has a larger error
DYKSTRA = "Dykstra, 100 iterations"  # the paper's number
_PAPER_LAM = 1e-4  # the only one that the paper states
_OF_ROUTER = (400, 28)  # n and k of the paper's V-MoE
_LAM_IN_USE = 0.1  # the least that validation chose for a router with a constant lam
# The paper's times: a step relative to one with cross-entropy, and training relative to the hard router's.
_PAPER_LOSSES = {"top-3, p = 2": 9.7 / 9.5, "top-3, p = 4/3": 10 / 9.5}
_PAPER_ROUTER = 15 / 10

RECORD, GPU = "cpu-amd-epyc-2c.json", "gpu-nvidia-h200.json"  # the machines whose timings the READMEs show
_BASELINE = "lax.top_k"
# Columns of the table of masks, and the contestant and mode of each; jaxopt has p = 2 only.
_MASKS = (
    ("`topk_mask`, p = 2", "topk_mask p=2 forward"),
    ("with gradient", "topk_mask p=2 forward+backward"),
    ("`topk_mask`, p = 4/3", "topk_mask p=4/3 forward"),
    ("with gradient", "topk_mask p=4/3 forward+backward"),
    ("jaxopt, p = 2", "jaxopt box section forward"),
    ("torch.topk", "torch.topk forward"),
    ("a copy", "copy forward"),
)
_HEADER = ["batch, n, k", *(name for name, _ in _MASKS)]
_ON_CPU, _ON_GPU = (0, 1, 2, 3, 5, 7), (0, 1, 2, 3, 5, 6)  # the columns of each table
_SIZES = (100, 1000, 10**4, 10**5)  # entries of a row in the table of solvers
_ADVICE = "put back a copy of it, or make it again"


def machines(bench: Path) -> list[dict[str, Any]]:
    """Returns the benchmarks of each machine that has a file in a directory."""
    return [read_object(path, _ADVICE) for path in sorted(bench.glob("*.json"))]


def name_of(record: Numbers) -> str:
    """Names the hardware of a benchmark, for example `2 cores of AMD EPYC`."""
    devices, machine = record["environment"]["devices"], record["environment"]["machine"]
    return devices["kind"] if _on_accelerator(record) else f"{machine['cores']} cores of {machine['cpu']}"


def runtime(results: Path) -> Finding | None:
    """Judges whether Dykstra's algorithm is faster than PAV at a router's size, with 100 iterations and with ten."""
    record = _first(results, "isotonic")
    if record is None:
        return None
    medians = {row["way"]: row["median_ms"] for row in record["rows"] if (row["n"], row["k"]) == _OF_ROUTER}

    def judge(iterations: int) -> Verdict:
        ratio = medians[f"Dykstra, {iterations} iterations"] / medians["PAV"]
        text = f"{iterations} iterations: {ratio:.2g} times as long"
        return Verdict(of_fact(ratio < 1), text)

    return Finding(judge(100), judge(10), name_of(record))


def losses(results: Path) -> Finding | None:
    """Judges the time that the top-3 losses add to a step of fine-tuning ViT-B/16 at 384 pixels."""

    def judge(record: Numbers) -> Verdict:
        extra = {name: record["losses"][name]["one_plus_extra_over_step"] for name in _PAPER_LOSSES}
        verdict = of_fact(all(ratio <= _PAPER_LOSSES[name] for name, ratio in extra.items()))
        return Verdict(verdict, f"{100 * (max(extra.values()) - 1):.2g} % of a step")

    return _timed(results, "losses", judge, variant="B/16", size=384)


def routers(results: Path) -> Finding | None:
    """Judges the time of a step relative to one with the hard router.

    On CPUs the time of the routers alone counts, because whole steps vary by more than that.
    """

    def judge(record: Numbers) -> Verdict:
        by = "ratio_of_steps" if _on_accelerator(record) else "one_plus_extra_over_step"
        most = max(record["routers"][name][by] for name in ("relaxed, logits", "Dykstra, 10 iterations"))
        return Verdict(
            of_fact(most >= _PAPER_ROUTER), f"{'only ' if most < _PAPER_ROUTER else ''}{most:.3f} times as long"
        )

    return _timed(results, "router", judge)


def convergence(results: Path) -> Finding | None:
    """Judges whether a hundred iterations of Dykstra's algorithm are exact, by lam at every size."""
    record = _first(results, "exactness")
    if record is None:
        return None
    errors = [(row["lam"], row["max_abs_error"]) for row in record["rows"] if row["way"] == DYKSTRA]

    def verdict(counts: Callable[[float], bool], phrase: str) -> Verdict | None:
        exact = [error < SAME for lam, error in errors if counts(lam)]
        return Verdict(of_fact(all(exact)), phrase.format(f"{sum(exact)} of {len(exact)}")) if exact else None

    return Finding(
        verdict(lambda lam: lam == _PAPER_LAM, "exact at {} row lengths"),
        verdict(lambda lam: lam >= _LAM_IN_USE, f"lam from {_LAM_IN_USE:g}: exact in {{}} cases"),
        name_of(record),
    )


def _timed(results: Path, benchmark: str, judge: Callable[[Numbers], Verdict], **papers: Any) -> Finding | None:
    """Returns the finding of a benchmark: as stated if it ran on an accelerator with the paper's settings."""
    record = _first(results, benchmark)
    if record is None:
        return None
    as_in_paper = _on_accelerator(record) and all(record["settings"][name] == papers[name] for name in papers)
    return where_possible(judge(record), name_of(record), as_in_paper=as_in_paper)


def _first(results: Path, benchmark: str) -> Any:
    """Returns the record of a benchmark on an accelerator, the paper's hardware, else on a CPU, else None."""
    records = [machine[benchmark] for machine in machines(results / "bench") if benchmark in machine]
    return min(records, key=lambda record: not _on_accelerator(record), default=None)


def _on_accelerator(record: Numbers) -> bool:
    return record["environment"]["devices"]["platform"] != "cpu"


def blocks(results: Path) -> dict[str, list[str]]:
    """Returns the lines of each table, by the name of its block."""
    machine, gpu = (read_object(results / "bench" / name, _ADVICE) for name in (RECORD, GPU))
    times, errors = machine["isotonic"], machine["exactness"]["rows"]
    tables = {"speed in full": (_ON_CPU, machine), "speed on a GPU": (_ON_GPU, gpu)}
    return {
        name: grid([_HEADER[i] for i in columns], [_masks(case, columns) for case in record["masks"]["cases"]], text=1)
        for name, (columns, record) in tables.items()
    } | {
        "solvers": _solvers(times["rows"], errors),
        "regressions": _regressions(times["regressions"]),
        "attention costs": _attention(next(record for record in machines(results / "bench") if "attention" in record)),
    }


def _attention(record: dict[str, Any]) -> list[str]:
    """Returns the lines of times of a layer of attention over those of a dense one, and of its memory."""
    lengths, longest = record["attention"]["attention"], max(record["attention"]["attention"], key=int)
    dense = lengths[longest]["dense"]["temporary_bytes"]
    rows = [
        [
            selectors.NAMES[name],
            *(f"{times[name]['ratio_to_dense']:.2f}" for times in lengths.values()),
            f"{lengths[longest][name]['temporary_bytes'] / dense:.2f}",
        ]
        for name in lengths[longest]
    ]
    header = ["time over dense", *(f"{int(n):,} tokens" for n in lengths), f"memory at {int(longest):,}"]
    ms = ", ".join(f"{times['dense']['median_ms']:.0f}" for times in lengths.values())
    return [
        *grid(header, rows, text=1),
        "",
        f"A dense layer takes {ms} ms, forward and backward, on {name_of(record['attention'])}.",
    ]


def _masks(case: dict[str, Any], columns: Sequence[int]) -> list[str]:
    """Returns the columns of the row of a shape: times relative to the baseline's."""
    timed = [row for row in case["results"] if row["status"] == "timed"]
    ratios = {f"{row['contestant']} {row['mode']}": f"{row['ratio_to'][_BASELINE]:.2g}" for row in timed}
    row = [f"{case['batch']}, {case['n']}, {case['k']}", *(ratios.get(key, "-") for _, key in _MASKS)]
    return [row[i] for i in columns]


def _regressions(times: Rows) -> list[str]:
    """Returns the lines of median milliseconds of isotonic regression, by package."""
    sizes = sorted({row["n"] for row in times})
    medians = {(row["package"], row["n"]): f"{row['median_ms']:.2g}" for row in times}
    packages = dict.fromkeys(package for package, _ in medians)
    rows = [[package, *(medians.get((package, n), "-") for n in sizes)] for package in packages]
    return grid(["isotonic regression", *(f"n = {n:,}" for n in sizes)], rows, text=1)


def _solvers(times: Rows, errors: Rows) -> list[str]:
    """Returns the lines of median milliseconds for each way to the mask, and its largest error up to the last size."""
    rows = []
    for way in dict.fromkeys(row["way"] for row in times):
        medians = {row["n"]: f"{row['median_ms']:.2g}" for row in times if row["way"] == way}
        worst = [row["max_abs_error"] for row in errors if row["way"] == way and row["n"] <= _SIZES[-1]]
        rows.append([way, *(medians.get(n, "-") for n in _SIZES), f"{max(worst):.0e}" if worst else "-"])
    return grid(["solver", *(f"n = {n:,}" for n in _SIZES), "largest error"], rows, text=1)
