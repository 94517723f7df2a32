"""The suites on offer, as lists of runs.

small  what results/cifar100_vit holds, the stand-in for ViT-B/16: pretraining on the coarse labels of CIFAR-100,
       hyper-parameters of every loss chosen on validation, then every loss on test; two hours and a quarter on
       2 CPU cores that are busy
pretrained   the stand-in with ImageNet's features: a linear head on those of a frozen EfficientNet-Lite0. Every loss at
       the paper's learning rate, and at its own, chosen on validation from one grid; 39 minutes on 2 CPU cores
last_block   the same of a few losses, with that network's last block trained, too: hours on 2 CPU cores
demo   the same in little on scikit-learn's digits, without the choice; under a minute
full   the paper's three runs at full size, those with a smooth target, and the mixture: for accelerators, at the
       paper's learning rates and each at its own

Pretraining sees neither the validation nor the test images.
"""

from collections.abc import Callable, Iterator

from experiments.cifar100_vit.losses import LOSSES
from experiments.cifar100_vit.report.naming import PAPER
from experiments.cifar100_vit.suite.forms import forms, rates_and_lams
from experiments.cifar100_vit.suite.on_features import last_block, pretrained
from experiments.core.suite.plan import SuiteRun
from experiments.vision.digits import DIGITS

PRETRAIN = "pretrain"
SWEEP_SEEDS = (100,)
FINAL_SEEDS = (0, 1, 2, 3, 4)

# The same learning rates for every loss. How strong a top-k loss is depends on lam, so each is tried with each rate.
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
# One at a time: batches of 512 images of 384 pixels fill the devices, and a stream is of one seed.
FULL_SEEDS = (0, 1, 2)
FULL_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)

DEMO_SEEDS = (0, 1, 2)
DEMO = DIGITS | {"batch_size": 64}


def small() -> list[SuiteRun]:
    """Pretraining, the sweep on validation, then the final runs on test."""
    pretraining = SuiteRun(PRETRAIN, {"split": "validation"}, variant="small,pretrain")
    return [pretraining, *_sweep(), *_final()]


def demo() -> list[SuiteRun]:
    """Pretraining on pairs of digits, then some losses on the ten, at one setting."""
    pretraining = {
        "split": "validation",
        "steps": 200,
        "eval_every": 200,
        "checkpoint_every": 200,
        "optimizer.warmup_steps": 20,
    }
    runs = [SuiteRun(PRETRAIN, DEMO | pretraining, variant="small,pretrain")]
    fields = {"seeds": DEMO_SEEDS, "steps": 100, "eval_every": 10, "checkpoint_every": 100, "loss.lam": 1.0}
    for name, form in forms().items():
        shown = LOSSES[form["loss.name"]].demo
        if shown is None or name in shown:
            base = DEMO | fields | {"optimizer.learning_rate": 0.1} | form
            runs.append(SuiteRun(f"final-{name}", base, variant="small", weights_of=PRETRAIN))
    return runs


def full() -> list[SuiteRun]:
    """From public weights: every loss at the paper's rate, the rates on validation, every loss at its own."""
    at_papers, tried, at_own = [], [], []
    for name, form in forms().items():
        variant = f"loss={form['loss.name']}"
        for seed in FULL_SEEDS:
            base = form | {"seeds": (seed,), "export_examples": True}
            at_papers.append(SuiteRun(f"{PAPER}{name}-seed{seed}", base, variant=variant))
            at_own.append(SuiteRun(f"final-{name}-seed{seed}", base, best_of=name, variant=variant))
        base = form | {"split": "validation", "seeds": SWEEP_SEEDS}
        for rate in FULL_RATES:
            setting = {"optimizer.learning_rate": rate}
            run = f"sweep/{name}-lr{rate:g}"
            tried.append(SuiteRun(run, base, setting, candidate_for=name, variant=variant))
    return at_papers + tried + at_own


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {
    "small": small,
    "pretrained": pretrained,
    "last_block": last_block,
    "demo": demo,
    "full": full,
}


def _sweep() -> Iterator[SuiteRun]:
    """The candidates of every loss."""
    base = {"split": "validation", "seeds": SWEEP_SEEDS, "checkpoint_every": 100}
    for name, form in forms().items():
        for label, setting in rates_and_lams(RATES, LOSSES[form["loss.name"]].lams):
            yield SuiteRun(
                f"sweep/{name}-{label}",
                base | form,
                setting,
                candidate_for=name,
                variant="small",
                weights_of=PRETRAIN,
            )


def _final() -> Iterator[SuiteRun]:
    """Every loss at the setting chosen for it."""
    base = {"split": "test", "seeds": FINAL_SEEDS, "checkpoint_every": 100}
    for name, form in forms().items():
        yield SuiteRun(f"final-{name}", base | form, best_of=name, variant="small", weights_of=PRETRAIN)
