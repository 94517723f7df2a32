"""Which of the benchmark's records to believe: accelerators, the paper's hardware, come first."""

from pathlib import Path

from experiments.core.report.finding import Numbers, read


def first_on_accelerator(results: Path, benchmark: str) -> Numbers | None:
    """The record of a benchmark on an accelerator, else on a CPU, else None.

    Every machine has a file below `results`/bench, in which every benchmark has a section.
    """
    machines = [read(path) for path in sorted((results / "bench").glob("*.json"))]
    records = [machine[benchmark] for machine in machines if benchmark in machine]
    return next(iter(sorted(records, key=lambda record: not on_accelerator(record))), None)


def on_accelerator(record: Numbers) -> bool:
    """Whether it was not measured on a CPU."""
    return record["environment"]["devices"]["platform"] != "cpu"


def name_of(record: Numbers) -> str:
    """Of the hardware."""
    devices, machine = record["environment"]["devices"], record["environment"]["machine"]
    return devices["kind"] if on_accelerator(record) else f"{machine['cores']} cores of {machine['cpu']}"
