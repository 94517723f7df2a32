"""The whole benchmark, from sizes to a record that can be written as JSON."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from scripts.bench import programs, record
from scripts.bench.case import compare
from scripts.bench.compilations import new_compilations
from scripts.bench.contestants import Contestant, operator_name
from scripts.bench.memory import measure
from scripts.bench.progress import Progress
from scripts.bench.scaling import scaling
from scripts.bench.sizes import Sizes
from scripts.bench.targets import evaluate
from scripts.bench.timing import Budget


def run(sizes: Sizes, contestants: Sequence[Contestant], say: Callable[[str], None] = print) -> dict[str, Any]:
    """Measures everything in ``sizes``, all of it in this process but for memory.

    Args:
      sizes: of the cases, and budgets.
      contestants: who takes part; the one named ``topk_mask p=2`` must be among them.
      say: told of every stage.

    Returns:
      Cases (see ``compare``), scaling, compilations, programs, memory, and the targets evaluated from these.
    """
    compiling = 1.5 * len(contestants)
    guesses = [compiling + sizes.seconds * (1 + case.batch * case.n / 5e6) for case in sizes.cases]
    guesses += [
        sizes.scaling_seconds + 3.0 * len(sizes.scaling),
        5.0,
        20.0 * len(sizes.programs_of),
        *(9.0 for _ in sizes.memory_of),
    ]
    progress = Progress(guesses, say)
    begun, load = time.monotonic(), record.load_average()

    cases = []
    for case in sizes.cases:
        progress.next(f"batch {case.batch}, n {case.n}, k {case.k}")
        cases.append(compare(case, contestants, Budget(sizes.seconds, sizes.fewest, sizes.most), sizes.seed))
    progress.next("time against n")
    (p2,) = (contestant for contestant in contestants if contestant.name == operator_name("topk_mask", "2"))
    growth = scaling(p2, sizes.scaling, Budget(sizes.scaling_seconds, sizes.fewest, sizes.most), sizes.seed)
    progress.next("compilations")
    compilations = new_compilations()
    progress.next("cost of programs")
    costs = programs.measure(sizes.programs_of)
    memory = []
    for name in sizes.memory_of:
        progress.next(f"memory of {name}")
        memory.append(measure(name, sizes.memory))

    results: dict[str, Any] = {"cases": cases, "scaling": growth, "compilations": compilations, "memory": memory}
    results["programs"] = costs
    results["targets"] = evaluate(results)
    return {
        "seconds": time.monotonic() - begun,
        "load_average": {"before": load, "after": record.load_average()},
        **results,
    }
