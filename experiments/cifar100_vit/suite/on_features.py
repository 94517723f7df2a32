"""The runs on features of a frozen network: every loss at the paper's learning rate, and each at its own.

Its own are chosen on validation: the learning rate, then at that rate the weight decay. lam stays as it is: for the
losses of this framework and a head that starts from zeros only rate / lam matters, where nothing is clipped. That is
not so of the temperature of the smooth SVM and of the sorted cross-entropy, which is chosen with the rate, nor where a
block is trained with the head; there lam is one that was not chosen.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.cifar100_vit.losses import LOSSES
from experiments.cifar100_vit.report.naming import PAPER
from experiments.cifar100_vit.suite.forms import Fields, forms_on_features, rates_and_lams
from experiments.core.suite.plan import SuiteRun

SWEEP_SEEDS = (100,)
FINAL_SEEDS = (0, 1, 2, 3, 4)

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
DECAYS = (0.01, 0.1, 1.0)  # besides none; they are scaled by the rate
FEW_IMAGES_DECAYS = (*DECAYS, 10.0)
# In the other settings: cross-entropy, the paper's losses and one that comes closer to it.
FEW = ("xent", "topk-p2", "topk-p4_3", "top1-p4_3")
FEW_RATES = RATES[:9]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Data and length of training, in which losses are compared.

    Attributes:
      prefix: of the names of its runs.
      fields: of the config.
      steps: the option of that name.
      losses: by their names in `forms_on_features`; none: all.
      rates, decays: tried for each of them.
      form: of the config.
    """

    prefix: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int = 100
    losses: Sequence[str] = ()
    rates: Sequence[float] = RATES
    decays: Sequence[float] = DECAYS
    form: str = "features"


PAPERS = Setting("")
OTHERS = (
    Setting("images10/", {"images_per_class": 10}, losses=FEW, rates=FEW_RATES, decays=FEW_IMAGES_DECAYS),
    Setting("images50/", {"images_per_class": 50}, losses=FEW, rates=FEW_RATES, decays=FEW_IMAGES_DECAYS),
    Setting("steps1000/", steps=1000, losses=FEW, rates=FEW_RATES),
    Setting("steps5000/", steps=5000, losses=FEW, rates=(0.0005, *RATES[:6])),  # the longer, the smaller are the best
)


LAST_BLOCK = Setting("", losses=FEW, rates=RATES[:11], decays=(), form="last_block")


def pretrained() -> list[SuiteRun]:
    """In the paper's setting every loss, at the paper's rates and at its own; in the others a few, at their own."""
    return [*_at_paper_rates(PAPERS), *(run for setting in (PAPERS, *OTHERS) for run in _tuned(setting))]


def last_block() -> list[SuiteRun]:
    """A few losses where the last block is trained with the head, at the paper's rates and at their own."""
    return [*_at_paper_rates(LAST_BLOCK), *_tuned(LAST_BLOCK)]


def _forms(setting: Setting) -> dict[str, Fields]:
    return {name: form for name, form in forms_on_features().items() if name in setting.losses or not setting.losses}


def _at_paper_rates(setting: Setting) -> Iterator[SuiteRun]:
    for name, form in _forms(setting).items():
        rate = {"optimizer.learning_rate": LOSSES[form["loss.name"]].learning_rate}
        yield SuiteRun(f"{PAPER}{name}", _final(setting) | rate | form, variant=setting.form)


def _tuned(setting: Setting) -> Iterator[SuiteRun]:
    """For each loss the rates, then decays at the best of them, then the best of all on test."""
    variant = f"{setting.form},steps={setting.steps}"
    for name, form in _forms(setting).items():
        validation = {"split": "validation", "seeds": SWEEP_SEEDS, "checkpoint_every": setting.steps}
        base, sweep = validation | dict(setting.fields) | form, f"{setting.prefix}sweep/{name}"
        best = f"{setting.prefix}{name}"
        at_best_rate = f"{best}, rate" if setting.decays else best
        for label, tried in rates_and_lams(setting.rates, LOSSES[form["loss.name"]].temperatures):
            yield SuiteRun(f"{sweep}-{label}", base, tried, candidate_for=at_best_rate, variant=variant)
        for decay in setting.decays:
            tried = {"optimizer.weight_decay": decay}
            yield SuiteRun(
                f"{sweep}-decay{decay:g}", base, tried, candidate_for=best, best_of=at_best_rate, variant=variant
            )
        yield SuiteRun(f"{setting.prefix}final-{name}", _final(setting) | form, best_of=best, variant=variant)


def _final(setting: Setting) -> dict[str, Any]:
    return {
        "split": "test",
        "seeds": FINAL_SEEDS,
        "checkpoint_every": setting.steps,
        "export_examples": True,
        **setting.fields,
    }
