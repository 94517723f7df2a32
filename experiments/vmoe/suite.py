"""Trains all runs of a preset, makes table and figures: `python -m experiments.vmoe.suite --out=DIR`.

cifar100  the paper's network and routing problem at 28 pixels, for one GPU: for every router of CIFAR100_ROUTERS the
       learning rate on validation, then a lam, both after 10 epochs with one seed; then three seeds for 30 epochs
tokens  a stand-in for V-MoE S/32 on JFT-300M: a small network on maps of ImageNet's features of CIFAR-100, with the
       paper's routing problem (n = 400 tokens, 32 experts, k = 28). Learning rate and lam of every router are chosen on
       validation, then ten seeds of each train for test; 90 minutes on 2 CPU cores
longer  the same, and the paper's two routers and a dense network for four times as many steps, at a rate chosen for
       that with one seed, then a lam with three; in the same directory
seeds  the same, and ten more seeds of the hard router and the paper's two for as many steps, in the same directory;
       three hours on one core
small  the runs of results/vmoe, a stand-in that learns its features itself: a small network on CIFAR-100 with the same
       routing problem. The learning rate of the hard router and lam of the relaxed ones are chosen on validation, then
       every router trains for test at the rate of the hard one; under an hour on 2 CPU cores
buffers  the same, and the relaxed router of the logits with three times the slots, to see whether it suffers from
       tokens that find no room; ten minutes more, in the same directory
demo   a small version on scikit-learn's digits, where nothing is chosen; under a minute
full   S/32 on ImageNet with the hard router, the relaxed one, and the paper's with Dykstra's algorithm: for
       accelerators, nothing chosen

Choices are made on validation with one seed. On tokens a constant lam is chosen first, at the second rate; then the
rate, from the same grid for all routers.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.vision.digits import DIGITS
from experiments.vmoe import experiment, report
from experiments.vmoe.router_kinds import ROUTERS

Fields = dict[str, Any]

SWEEP_SEEDS = (100,)
DYKSTRA_ITERATIONS = 10  # as in the paper
LARGE_BUFFER = 84  # slots: three times k

# The presets `tokens` and `longer`.
TOKENS_SEEDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
TOKENS_RATES = (3e-3, 1e-2, 3e-2, 1e-1)
TOKENS_LAMS = (0.1, 1.0, 10.0)  # tried at the second rate
WITH_LAM = {"relaxed", "straight_through", "balanced"}  # routers with a constant lam
# By router, the lam at which its learning rates are tried in the longer runs: the best of the short ones, by the
# version of JAX that trained the longer ones.
LONGER = {
    "hard-logits": None,
    "relaxed-logits": 0.1,
    "straight_through": 1.0,
    "relaxed-logits-dykstra10": 1.0,
    "dense": None,
}
LONGER_STEPS = 3200
LONGER_LAM_SEEDS = (100, 101, 102)
# Routers that train with further seeds, which had no part in what led to their comparison.
MORE_SEEDS = ("hard-logits", "relaxed-logits", "relaxed-logits-dykstra10")
FURTHER = (tuple(range(10, 20)),)
# The two routers of the paper in every form; other routers train at their defaults.
FORMS: dict[str, tuple[str, Fields]] = {
    "hard-gates": ("hard", {"router.score": "gates"}),
    "hard-logits": ("hard", {"router.score": "logits"}),
    "relaxed-logits": ("relaxed", {"router.score": "logits"}),
    "relaxed-logits-p4_3": ("relaxed", {"router.score": "logits", "router.p": 4 / 3}),
    "relaxed-gates": ("relaxed", {"router.score": "gates"}),
    f"relaxed-logits-{LARGE_BUFFER}slots": ("relaxed", {"router.score": "logits", "router.capacity": LARGE_BUFFER}),
    "relaxed-logits-dykstra10": ("relaxed", {"router.score": "logits", "router.dykstra": DYKSTRA_ITERATIONS}),
}

# The preset `cifar100`: names in FORMS, and others as `_forms` has them.
CIFAR100_ROUTERS = (
    "hard-logits",
    "hard-gates",
    "relaxed-logits",
    "relaxed-gates",
    "relaxed-logits-dykstra10",
    "annealed",
    "dense",
    "none",
)
CIFAR100_SEEDS = (0, 1, 2)
CIFAR100_RATES = (5e-4, 1e-3, 2e-3)  # the paper's, and its neighbours
CIFAR100_LAMS = {"logits": (0.1, 1.0, 10.0), "gates": (0.01, 0.1, 1.0)}  # gates are smaller
CIFAR100_LENGTH: Fields = {"steps": 500, "eval_every": 500, "optimizer.warmup_steps": 50}  # of what is tried

# The presets `small` and `buffers`.
SMALL_SEEDS = (0, 1, 2, 3, 4)
SMALL_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # tried for the hard router
BEST_RATE = 1e-2  # the best of them, at which all other routers train
SMALL_LAMS = {"logits": (0.01, 0.1, 1.0, 10.0), "gates": (0.001, 0.01, 0.1, 1.0, 10.0)}
LENGTH = {"steps": 600, "eval_every": 75, "checkpoint_every": 300}

DEMO_ROUTERS = ("hard", "relaxed", "balanced", "token_choice", "dense")
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


def tokens() -> list[SuiteRun]:
    """Returns the sweeps of every router, each followed by its final run on test."""
    return [run for name, (router, form) in _forms().items() for run in _tuned(name, router, form)]


def longer() -> list[SuiteRun]:
    """Returns the runs of `tokens`, and those of the routers in LONGER for LONGER_STEPS."""
    return [*tokens(), *(run for name in LONGER for run in _longer(name, *_forms()[name]))]


def seeds() -> list[SuiteRun]:
    """Returns the runs of `longer`, and the final ones of MORE_SEEDS again with FURTHER seeds."""
    runs = longer()
    finals = [run for name in MORE_SEEDS for run in runs if run.name == f"final-{name}-{LONGER_STEPS}steps"]
    for tens in FURTHER:
        runs += [
            dataclasses.replace(run, name=f"{run.name}-seeds{tens[0]}to{tens[-1]}", base={**run.base, "seeds": tens})
            for run in finals
        ]
    return runs


def _forms() -> dict[str, tuple[str, Fields]]:
    """Returns FORMS, and every other router at its defaults, by the names of runs."""
    in_forms = {router for router, _ in FORMS.values()}
    return FORMS | {name: (name, {}) for name in ROUTERS if name not in in_forms}


def _tuned(name: str, router: str, form: Fields) -> Iterator[SuiteRun]:
    variant = f"tokens,router={router}"
    base: Fields = form | {"split": "validation", "seeds": SWEEP_SEEDS}
    at_best_lam = f"{name}, lam" if router in WITH_LAM else None
    if at_best_lam:
        for lam in TOKENS_LAMS:
            tried = {"router.lam.start": lam, "router.lam.end": lam, "optimizer.learning_rate": TOKENS_RATES[1]}
            yield SuiteRun(f"sweep/{name}-lam{lam:g}", base, tried, candidate_for=at_best_lam, variant=variant)
    for rate in TOKENS_RATES:
        if at_best_lam and rate == TOKENS_RATES[1]:
            continue  # the run that won the choice of lam has this rate, and competes
        tried = {"optimizer.learning_rate": rate}
        yield SuiteRun(
            f"sweep/{name}-lr{rate:g}", base, tried, candidate_for=name, best_of=at_best_lam, variant=variant
        )
    final: Fields = form | {"split": "test", "seeds": TOKENS_SEEDS}
    yield SuiteRun(f"final-{name}", final, best_of=name, variant=variant)


def _longer(name: str, router: str, form: Fields) -> Iterator[SuiteRun]:
    """Yields the rates at the lam in LONGER, then lams at the best rate, then the final run."""
    variant, choice = f"tokens,router={router}", f"{name}, {LONGER_STEPS} steps"
    length = {"steps": LONGER_STEPS, "eval_every": LONGER_STEPS // 10}
    sweep: Fields = form | length | {"split": "validation"}
    lam = LONGER[name]
    at_lam: Fields = {} if lam is None else {"router.lam.start": lam, "router.lam.end": lam}
    for rate in TOKENS_RATES:
        tried = at_lam | {"optimizer.learning_rate": rate}
        run, base = f"sweep/{name}-{LONGER_STEPS}steps-lr{rate:g}", sweep | {"seeds": SWEEP_SEEDS}
        yield SuiteRun(run, base, tried, candidate_for=choice, variant=variant)
    if router in WITH_LAM:
        at_best_rate, choice = choice, f"{choice}, lam"
        for lam in TOKENS_LAMS:
            tried = {"router.lam.start": lam, "router.lam.end": lam}
            run, base = f"sweep/{name}-{LONGER_STEPS}steps-lam{lam:g}", sweep | {"seeds": LONGER_LAM_SEEDS}
            yield SuiteRun(run, base, tried, candidate_for=choice, best_of=at_best_rate, variant=variant)
    final: Fields = form | length | {"split": "test", "seeds": TOKENS_SEEDS}
    yield SuiteRun(f"final-{name}-{LONGER_STEPS}steps", final, best_of=choice, variant=variant)


def cifar100() -> list[SuiteRun]:
    """Returns the rates, then the lams of every router on validation, and its final runs, a seed each."""
    runs = []
    for name in CIFAR100_ROUTERS:
        router, form = _forms()[name]
        variant, choice = f"cifar100,router={router}", f"{name}, rate"
        sweep = form | CIFAR100_LENGTH | {"split": "validation", "seeds": SWEEP_SEEDS}
        with_lam = router in WITH_LAM
        for rate in CIFAR100_RATES:
            tried = {"optimizer.learning_rate": rate}
            won = choice if with_lam else name
            runs.append(SuiteRun(f"sweep/{name}-lr{rate:g}", sweep, tried, candidate_for=won, variant=variant))
        for lam in CIFAR100_LAMS[form["router.score"]] if with_lam else ():
            tried = {"router.lam.start": lam, "router.lam.end": lam}
            run = f"sweep/{name}-lam{lam:g}"
            runs.append(SuiteRun(run, sweep, tried, candidate_for=name, best_of=choice, variant=variant))
        for seed in CIFAR100_SEEDS:
            final = form | {"seeds": (seed,)}
            runs.append(SuiteRun(f"final-{name}-seed{seed}", final, best_of=name, variant=variant))
    return runs


def small() -> list[SuiteRun]:
    """Returns the sweeps on validation, then the final runs on test."""
    return [*_small_sweep(), *_small_final()]


def buffers() -> list[SuiteRun]:
    """Returns the runs of `small`, and one with room for the tokens that lam = 1 spreads a mask over."""
    (narrow,) = [run for run in _small_final() if run.name == "final-relaxed-logits"]
    wide = {"router.capacity": LARGE_BUFFER}
    name = f"{narrow.name}-{LARGE_BUFFER}slots"
    return [*small(), dataclasses.replace(narrow, name=name, base={**narrow.base, **wide})]


def _small_sweep() -> Iterator[SuiteRun]:
    base: Fields = LENGTH | {"split": "validation", "seeds": SWEEP_SEEDS}
    for rate in SMALL_RATES:
        setting: Fields = {"optimizer.learning_rate": rate}
        yield SuiteRun(f"sweep/hard-lr{rate:g}", base, setting, candidate_for="hard", variant="small,router=hard")
    for score, lams in SMALL_LAMS.items():
        choice, fields = f"relaxed-{score}", {"router.score": score, "optimizer.learning_rate": BEST_RATE}
        for lam in lams:
            setting = {"router.lam.start": lam, "router.lam.end": lam}
            name = f"sweep/{choice}-lam{lam:g}"
            yield SuiteRun(name, base | fields, setting, candidate_for=choice, variant="small,router=relaxed")


def _small_final() -> Iterator[SuiteRun]:
    base: Fields = LENGTH | {"split": "test", "seeds": SMALL_SEEDS}
    yield SuiteRun("final-hard", base, best_of="hard", variant="small,router=hard")
    by_logits: Fields = base | {"router.score": "logits"}  # the hard router that the relaxed one of the logits relaxes
    yield SuiteRun("final-hard-logits", by_logits, best_of="hard", variant="small,router=hard")
    base |= {"optimizer.learning_rate": BEST_RATE}
    relaxed = "small,router=relaxed"
    for score in SMALL_LAMS:
        of_score = base | {"router.score": score}
        yield SuiteRun(f"final-relaxed-{score}", of_score, best_of=f"relaxed-{score}", variant=relaxed)
    yield SuiteRun("final-token_choice", base, variant="small,router=token_choice")
    papers: Fields = base | {"router.score": "logits", "router.dykstra": DYKSTRA_ITERATIONS}
    yield SuiteRun("final-relaxed-logits-dykstra10", papers, best_of="relaxed-logits", variant=relaxed)


def demo() -> list[SuiteRun]:
    """Returns some routers at one setting."""
    base = DEMO | {"seeds": DEMO_SEEDS}
    return [SuiteRun(f"final-{name}", base, variant=f"small,router={name}") for name in DEMO_ROUTERS]


def full() -> list[SuiteRun]:
    """Returns the three routers at full size, with one seed each."""
    return [
        *(SuiteRun(f"final-{name}", {}, variant=f"router={name}") for name in ("hard", "relaxed")),
        SuiteRun("final-relaxed-dykstra10", {"router.dykstra": DYKSTRA_ITERATIONS}, variant="router=relaxed"),
    ]


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {
    "tokens": tokens,
    "cifar100": cifar100,
    "longer": longer,
    "seeds": seeds,
    "small": small,
    "buffers": buffers,
    "demo": demo,
    "full": full,
}


SUITE = Suite(
    recipe=experiment.RECIPE,
    presets=PRESETS,
    chosen_by="valid_error",
    shown=("test_precision_at_1", "valid_precision_at_1"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
