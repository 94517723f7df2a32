"""The runs on maps of a frozen network: every router, at a learning rate and a lam of its own, ten seeds of each.

They are chosen on validation, with one seed: lam at the second rate where it is constant, then the rate from a grid
that is the same for all. In `longer` some train again, for four times as many steps and at a rate chosen for that:
whether what is seen is a matter of length.
"""

from collections.abc import Iterator
from typing import Any

from experiments.core.suite.plan import SuiteRun
from experiments.vmoe.router_kinds import ROUTERS

Fields = dict[str, Any]

SWEEP_SEEDS = (100,)
FINAL_SEEDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
RATES = (3e-3, 1e-2, 3e-2, 1e-1)
LAMS = (0.1, 1.0, 10.0)  # at RATES[1]
WITH_LAM = {"relaxed", "straight_through", "balanced"}  # routers with a constant one
DYKSTRA_ITERATIONS = 10  # the paper's
LONGER = ("hard-logits", "relaxed-logits", "dense")
LONGER_STEPS = 3200
LARGE_BUFFER = 84  # slots: three times k
# Buffers for all tokens take fourteen times the products of k slots; large ones, in FORMS, drop next to nothing.
OMITTED = {name for name, kind in ROUTERS.items() if kind.unbounded}

# The two routers of the paper in every form; the others are trained as they come.
FORMS: dict[str, tuple[str, Fields]] = {
    "hard-gates": ("hard", {"router.score": "gates"}),
    "hard-logits": ("hard", {"router.score": "logits"}),
    "relaxed-logits": ("relaxed", {"router.score": "logits"}),
    "relaxed-logits-p4_3": ("relaxed", {"router.score": "logits", "router.p": 4 / 3}),
    "relaxed-gates": ("relaxed", {"router.score": "gates"}),
    f"relaxed-logits-{LARGE_BUFFER}slots": ("relaxed", {"router.score": "logits", "router.capacity": LARGE_BUFFER}),
    "relaxed-logits-dykstra10": ("relaxed", {"router.score": "logits", "router.dykstra": DYKSTRA_ITERATIONS}),
}


def tokens() -> list[SuiteRun]:
    """The sweeps of every router, each followed by its final run on test."""
    return [run for name, (router, form) in _forms().items() for run in _tuned(name, router, form)]


def longer() -> list[SuiteRun]:
    """Those of `tokens`, and the routers in LONGER again, for LONGER_STEPS."""
    return [*tokens(), *(run for name in LONGER for run in _longer(name, *_forms()[name]))]


def _forms() -> dict[str, tuple[str, Fields]]:
    """Of FORMS, and every other router as it comes, by the name of its runs."""
    in_forms = {router for router, _ in FORMS.values()}
    return FORMS | {name: (name, {}) for name in ROUTERS if name not in in_forms | OMITTED}


def _tuned(name: str, router: str, form: Fields) -> Iterator[SuiteRun]:
    variant = f"tokens,router={router}"
    base: Fields = form | {"split": "validation", "seeds": SWEEP_SEEDS}
    at_best_lam = f"{name}, lam" if router in WITH_LAM else None
    if at_best_lam:
        for lam in LAMS:
            tried = {"router.lam.start": lam, "router.lam.end": lam, "optimizer.learning_rate": RATES[1]}
            yield SuiteRun(f"sweep/{name}-lam{lam:g}", base, tried, candidate_for=at_best_lam, variant=variant)
    for rate in RATES:
        if at_best_lam and rate == RATES[1]:
            continue  # that of the best lam, which competes with the others
        tried = {"optimizer.learning_rate": rate}
        yield SuiteRun(
            f"sweep/{name}-lr{rate:g}", base, tried, candidate_for=name, best_of=at_best_lam, variant=variant
        )
    final: Fields = form | {"split": "test", "seeds": FINAL_SEEDS, "export_probe": True}
    yield SuiteRun(f"final-{name}", final, best_of=name, variant=variant)


def _longer(name: str, router: str, form: Fields) -> Iterator[SuiteRun]:
    """At the lam of the shorter runs."""
    variant, choice = f"tokens,router={router}", f"{name}, {LONGER_STEPS} steps"
    length = {"steps": LONGER_STEPS, "eval_every": LONGER_STEPS // 10}
    for rate in RATES:
        base: Fields = form | length | {"split": "validation", "seeds": SWEEP_SEEDS}
        tried = {"optimizer.learning_rate": rate}
        run = f"sweep/{name}-{LONGER_STEPS}steps-lr{rate:g}"
        yield SuiteRun(run, base, tried, candidate_for=choice, best_of=name, variant=variant)
    final: Fields = form | length | {"split": "test", "seeds": FINAL_SEEDS}
    yield SuiteRun(f"final-{name}-{LONGER_STEPS}steps", final, best_of=choice, variant=variant)
