"""The suites on offer, as lists of runs.

tokens  the stand-in for V-MoE S/32 on JFT-300M: a small network on maps of ImageNet's features of CIFAR-100, with the
       paper's routing problem (n = 400 tokens, 32 experts, k = 28); learning rate and lam of every router chosen on
       validation, then ten seeds of each on test; 90 minutes of 2 CPU cores
longer  those, and the paper's two routers and a dense network again for four times as many steps; in the same directory
small  what results/vmoe holds, the stand-in that learns its features itself: a small network on CIFAR-100 with the same
       routing problem; the learning rate of the hard router and lam of the relaxed ones chosen on validation, then
       every router on test; under an hour on 2 CPU cores
buffers  those, and the relaxed router of the logits with three times the slots: whether it suffers from what finds no
       room; ten minutes more, in the same directory
demo   the same in little on scikit-learn's digits, without the choice; under a minute
full   S/32 on ImageNet with the hard router, the relaxed one, and the paper's with Dykstra's algorithm: for
       accelerators, nothing chosen

All routers of a preset train for as many steps, but in `longer`. In `tokens` and `longer` each has the learning rate
that is best for it; in the others all have that of the hard router.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from experiments.core.suite.plan import SuiteRun
from experiments.vision.digits import DIGITS
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe.suite.on_tokens import longer, tokens

Fields = dict[str, Any]

SWEEP_SEEDS = (100,)
FINAL_SEEDS = (0, 1, 2, 3, 4)
RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # of the hard router
BEST_RATE = 1e-2  # of these: what all other routers train at
LAMS = {"logits": (0.01, 0.1, 1.0, 10.0), "gates": (0.001, 0.01, 0.1, 1.0, 10.0)}

DYKSTRA_ITERATIONS = 10  # the paper's
LARGE_BUFFER = 84  # slots: three times k

LENGTH = {"steps": 600, "eval_every": 75, "checkpoint_every": 300}

DEMO_SEEDS = (0, 1, 2)
DEMO: Fields = DIGITS | {
    "moe.blocks": (1,),
    "moe.num_experts": 8,
    "moe.group_images": 10,
    "router.k": 44,
    "batch_size": 60,
    "steps": 150,
    "eval_every": 25,
    "checkpoint_every": 150,
    "optimizer.warmup_steps": 15,
}


def small() -> list[SuiteRun]:
    """The sweeps on validation, then the final runs on test."""
    return [*_sweep(), *_final()]


def buffers() -> list[SuiteRun]:
    """Those of `small`, and one with room for what lam = 1 spreads over more tokens than k."""
    (narrow,) = [run for run in _final() if run.name == "final-relaxed-logits"]
    wide = {"router.capacity": LARGE_BUFFER}
    return [
        *small(),
        dataclasses.replace(narrow, name=f"{narrow.name}-{LARGE_BUFFER}slots", base={**narrow.base, **wide}),
    ]


def demo() -> list[SuiteRun]:
    """The routers at one setting."""
    return [
        SuiteRun(f"final-{name}", DEMO | {"seeds": DEMO_SEEDS}, variant=f"small,router={name}")
        for name in _plain("demo")
    ]


def full() -> list[SuiteRun]:
    """One seed each."""
    return [
        *(SuiteRun(f"final-{name}", {}, variant=f"router={name}") for name in _plain("full")),
        SuiteRun("final-relaxed-dykstra10", {"router.dykstra": DYKSTRA_ITERATIONS}, variant="router=relaxed"),
    ]


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {
    "tokens": tokens,
    "longer": longer,
    "small": small,
    "buffers": buffers,
    "demo": demo,
    "full": full,
}


def _sweep() -> Iterator[SuiteRun]:
    base: Fields = LENGTH | {"split": "validation", "seeds": SWEEP_SEEDS}
    for rate in RATES:
        setting: Fields = {"optimizer.learning_rate": rate}
        yield SuiteRun(f"sweep/hard-lr{rate:g}", base, setting, candidate_for="hard", variant="small,router=hard")
    for score, lams in LAMS.items():
        choice, fields = f"relaxed-{score}", {"router.score": score, "optimizer.learning_rate": BEST_RATE}
        for lam in lams:
            setting = {"router.lam.start": lam, "router.lam.end": lam}
            name = f"sweep/{choice}-lam{lam:g}"
            yield SuiteRun(name, base | fields, setting, candidate_for=choice, variant="small,router=relaxed")


def _final() -> Iterator[SuiteRun]:
    base: Fields = LENGTH | {"split": "test", "seeds": FINAL_SEEDS}
    yield SuiteRun("final-hard", base, best_of="hard", variant="small,router=hard")
    by_logits: Fields = base | {"router.score": "logits"}  # what the relaxed router of the logits relaxes
    yield SuiteRun("final-hard-logits", by_logits, best_of="hard", variant="small,router=hard")
    base |= {"optimizer.learning_rate": BEST_RATE}
    for score in LAMS:
        yield SuiteRun(
            f"final-relaxed-{score}",
            base | {"router.score": score},
            best_of=f"relaxed-{score}",
            variant="small,router=relaxed",
        )
    for name in _plain("small"):
        yield SuiteRun(f"final-{name}", base, variant=f"small,router={name}")
    papers: Fields = base | {"router.score": "logits", "router.dykstra": DYKSTRA_ITERATIONS}
    yield SuiteRun("final-relaxed-logits-dykstra10", papers, best_of="relaxed-logits", variant="small,router=relaxed")


def _plain(preset: str) -> list[str]:
    """The routers that a preset trains as they come."""
    return [name for name, kind in ROUTERS.items() if preset in kind.presets]
