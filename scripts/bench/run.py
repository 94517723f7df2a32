"""The whole benchmark, from sizes to a record that can be written as JSON."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

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


def run(
    sizes: Sizes,
    contestants: Sequence[Contestant],
    say: Callable[[str], None] = print,
    kept: record.Kept | None = None,
) -> dict[str, Any]:
    """Measures everything in ``sizes``, all of it in this process but for memory.

    Args:
      sizes: of the cases, and budgets.
      contestants: who takes part; the one named ``topk_mask p=2`` must be among them.
      say: told of every stage.
      kept: what is measured already, and where the rest is added as it comes.

    Returns:
      Cases (see ``compare``), scaling, compilations, programs, memory, and the targets evaluated from these; the parts
      that ``failed``, empty ones, and why.

    Raises:
      LostDeviceError: a contestant has ended the device.
    """
    kept = kept or record.Kept({})
    # Who reads a record that is not complete finds parts that are empty.
    parts: dict[str, Any] = {"cases": [], "scaling": {}, "compilations": {}, "memory": [], "programs": []}
    kept.document = parts | kept.document
    compiling = 1.5 * len(contestants)
    cases = kept.missing(sizes.cases)
    guesses = [compiling + sizes.seconds * (1 + case.batch * case.n / 5e6) for case in cases]
    guesses += [
        sizes.scaling_seconds + 3.0 * len(sizes.scaling),
        5.0,
        20.0 * len(sizes.programs_of),
        *(9.0 for _ in sizes.memory_of),
    ]
    progress = Progress(guesses, say)
    begun, load = time.monotonic(), record.load_average()

    budget = Budget(sizes.seconds, sizes.fewest, sizes.most)
    for case in cases:
        progress.next(f"batch {case.batch}, n {case.n}, k {case.k}")
        kept.case(case, functools.partial(compare, case, contestants, budget, sizes.seed))
    progress.next("time against n")
    (p2,) = (contestant for contestant in contestants if contestant.name == operator_name("topk_mask", "2"))
    growing = Budget(sizes.scaling_seconds, sizes.fewest, sizes.most)
    kept.part("scaling", lambda: scaling(p2, sizes.scaling, growing, sizes.seed))
    progress.next("compilations")
    kept.part("compilations", new_compilations)
    progress.next("cost of programs")
    kept.part("programs", lambda: programs.measure(sizes.programs_of))

    def memories() -> list[dict[str, Any]]:
        found = []
        for name in sizes.memory_of:
            progress.next(f"memory of {name}")
            found.append(measure(name, sizes.memory))
        return found

    kept.part("memory", memories)

    return {
        "seconds": time.monotonic() - begun,
        "load_average": {"before": load, "after": record.load_average()},
        **kept.document,
        "targets": evaluate(kept.document, jax.default_backend() == "cpu"),
    }
