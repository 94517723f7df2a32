"""Why the paper's lam fails: the relaxed operator at lam = 1e-4 under all that the paper leaves open.

Each variant is trained with hard top-k, where it means something to it, and with the relaxed one for p = 2; the first,
and the one that comes nearest to hard top-k, for p = 4/3 too, and that as long as the paper trains. Nothing is chosen,
so the runs are on test.
"""

from experiments.core.suite.plan import SuiteRun
from experiments.mnist_pruning import relaxed
from experiments.mnist_pruning.conventions import OF_OPERATOR, OPEN, in_name
from experiments.mnist_pruning.method import Fields

COMMON: Fields = {
    "split": "test",
    "seeds": tuple(range(5)),
    "epochs": 10,
    "checkpoint_every": 10,
    "prune_layers": (1, 2, 3),
}


def why() -> list[SuiteRun]:
    """Variant by variant."""
    runs = []
    for name, fields in (OPEN | OF_OPERATOR).items():
        where = f"why/{in_name(name)}"
        if name in OPEN:
            runs.append(SuiteRun(f"{where}-hard", COMMON | fields | {"method": "hard"}))
        for p_name, p in relaxed.P.items():
            if p == 2 or not fields or "lam_times_size" in fields:
                papers = {"method": "relaxed", **relaxed.papers(p)}
                runs.append(SuiteRun(f"{where}-{p_name}", COMMON | papers | fields))
    return runs
