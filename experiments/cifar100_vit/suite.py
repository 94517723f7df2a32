"""Trains all runs of a preset, makes table and figures: `python -m experiments.cifar100_vit.suite --out=DIR`.

small  the runs of results/cifar100_vit, a stand-in for ViT-B/16: pretraining on the coarse labels of CIFAR-100, then
       hyper-parameters of every loss chosen on validation, then every loss on test; two hours and a quarter on
       2 busy CPU cores
pretrained   the stand-in with ImageNet's features: a linear head on those of a frozen EfficientNet-Lite0. Every loss
       trains at the paper's learning rate, and at its own, chosen on validation; 39 minutes on 2 CPU cores
last_block   the same for a few losses, and the last block of that network is trained too; eleven hours of a CPU core
transformer  a pretrained ViT-S/14, all of it trained, by the paper's procedure, for one GPU: at the paper's rates, and
       each loss at the best of the same rates and the same strengths
demo   a small version on scikit-learn's digits, where nothing is chosen; under a minute
full   the paper's three runs at full size, those with a smooth target, and the mixture: for accelerators, at the
       paper's learning rates and each loss at its own

Pretraining sees neither the validation nor the test images.

On features the learning rate is chosen on validation, then at that rate the weight decay. lam is not chosen: for the
losses of this framework, cross-entropy with a temperature among them, and a head that starts from zeros, only rate /
lam matters (`tests/experiments/cifar100_vit/test_theory.py`). The temperature of the smooth SVM and of the sorted
cross-entropy does matter, and is chosen with the rate. lam matters too where a block is trained with the head: there it
is chosen in place of the weight decay, from as many values, the temperature of cross-entropy too; that and the lam of
the smooth targets once more at the paper's rates.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.cifar100_vit import report
from experiments.cifar100_vit.experiment import RECIPE
from experiments.cifar100_vit.losses import LOSSES
from experiments.cifar100_vit.report import PAPER, PAPER_LAM
from experiments.core import console
from experiments.core.suite import command
from experiments.core.suite.plan import Suite, SuiteRun
from experiments.vision.digits import DIGITS

Fields = Mapping[str, Any]  # of the config, by dotted name

PRETRAIN = "pretrain"
SWEEP_SEEDS = (100,)
FINAL_SEEDS = (0, 1, 2, 3, 4)
# A run has one seed: batches of 512 images of 384 pixels fill the devices, and a stream of images has one order.
FULL_SEEDS = (0, 1, 2)
DEMO_SEEDS = (0, 1, 2)

# The learning rates of all losses. The strength of a top-k loss depends on lam, so each lam is tried at each rate.
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
FULL_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
RATES_ON_FEATURES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
FEW_RATES = RATES_ON_FEATURES[:9]
DECAYS = (0.01, 0.1, 1.0)  # tried besides none; the trainer scales them by the rate
FEW_IMAGES_DECAYS = (*DECAYS, 10.0)


@dataclasses.dataclass(frozen=True)
class Form:
    """A loss as the suites train it.

    Attributes:
      loss: its name in LOSSES.
      fields: the fields of `config.loss` that it sets.
      lams: the lams to try with each learning rate on the small network; if empty, that of the config.
      temperatures: the values of lam to try with each rate on features, for losses with a temperature.
      in_all_suites: whether it is also in the suites that do not train on features.
    """

    loss: str
    fields: Fields = dataclasses.field(default_factory=dict)
    lams: Sequence[float] = ()
    temperatures: Sequence[float] = ()
    in_all_suites: bool = True

    @property
    def config_fields(self) -> dict[str, Any]:
        """The fields of the config that it sets, by dotted name."""
        return {"loss.name": self.loss} | {f"loss.{name}": value for name, value in self.fields.items()}


_LAMS = (0.03, 0.1, 1.0, 10.0)
_P2, _P4_3 = {"p": 2.0, "target": "one_hot"}, {"p": 4 / 3, "target": "one_hot"}
_P2_SMOOTH, _P4_3_SMOOTH = {"p": 2.0, "target": "smooth"}, {"p": 4 / 3, "target": "smooth"}
# The losses that the suites train, in this order.
FORMS = {
    "xent": Form("xent"),
    "topk-p2": Form("topk", _P2, lams=_LAMS),
    "topk-p4_3": Form("topk", _P4_3, lams=_LAMS),
    "topk-p2-smooth": Form("topk", _P2_SMOOTH, lams=_LAMS),
    "topk-p4_3-smooth": Form("topk", _P4_3_SMOOTH, lams=_LAMS),
    "top1-p2": Form("topk", _P2 | {"k": 1}, in_all_suites=False),
    "top1-p4_3": Form("topk", _P4_3 | {"k": 1}, in_all_suites=False),
    "mixture-p2": Form("topk_mixture", _P2_SMOOTH | {"k": 5}, lams=_LAMS[1:]),
    "mixture-p4_3": Form("topk_mixture", _P4_3_SMOOTH | {"k": 5}, in_all_suites=False),
    "surrogate-k5-p2": Form("topk_surrogate", {"p": 2.0, "k": 5}, in_all_suites=False),
    "xent-temperature": Form("xent_temperature", in_all_suites=False),
    "xent_smoothed": Form("xent_smoothed", in_all_suites=False),
    "truncated-entropy": Form("truncated_entropy", {"k": 5}, in_all_suites=False),
    "smooth-svm": Form("smooth_svm", {"k": 5}, temperatures=(0.01, 0.1, 1.0, 10.0), in_all_suites=False),
    "sorted-xent": Form("sorted_xent", {"k": 5}, temperatures=(0.1, 1.0, 10.0), in_all_suites=False),
}
IN_ALL_SUITES = {name: form for name, form in FORMS.items() if form.in_all_suites}
# The losses of the other settings: cross-entropy, the paper's two, and one that comes closer to cross-entropy.
FEW_LOSSES = ("xent", "topk-p2", "topk-p4_3", "top1-p4_3")
# A loss that at lam = 1 is another one. It tries lam at the other's best rate.
IS_AT_1 = {"xent-temperature": "xent"}
# Each loss of the transformer at each of these rates with each of these strengths, the temperature of cross-entropy.
ON_TRANSFORMER = ("xent-temperature", "topk-p2", "topk-p4_3", "topk-p2-smooth", "topk-p4_3-smooth", "top1-p4_3")
RATES_OF_TRANSFORMER = (0.001, 0.003, 0.01, 0.02, 0.04)
STRENGTHS_OF_TRANSFORMER = (0.1, 0.3, 1.0, 3.0)
IN_DEMO = ("xent", "topk-p2", "topk-p2-smooth", "topk-p4_3-smooth")
DEMO = DIGITS | {"batch_size": 64}


@dataclasses.dataclass(frozen=True)
class Setting:
    """Data and length of training on features, at which losses are compared.

    Attributes:
      prefix: what the names of its runs begin with.
      fields: fields of the config.
      steps: the config's option `steps`.
      losses: names in FORMS.
      rates, decays: learning rates to try for each loss, then weight decays at the best of them.
      lams: what losses with lam try in the place of weight decays.
      further_lams: by the name of a loss, lams that it tries besides, since it was best at the edge of `lams`.
      lams_at_paper_rate: by the name of a loss, what it tries at the rate that the config has for it, besides
        1 (among the `rates`).
      variant: the config's option for the network.
    """

    prefix: str
    fields: Fields = dataclasses.field(default_factory=dict)
    steps: int = 100
    losses: Sequence[str] = tuple(name for name in FORMS if name != "xent-temperature")  # there it is a rate by itself
    rates: Sequence[float] = RATES_ON_FEATURES
    decays: Sequence[float] = DECAYS
    lams: Sequence[float] = ()
    further_lams: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    lams_at_paper_rate: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    variant: str = "features"

    def tried_at_best_rate(self, name: str) -> tuple[str, Sequence[float]]:
        """Returns the field that a loss tries at its best rate, and the values."""
        if self.lams and "lam" in LOSSES[FORMS[name].loss].reads:
            return "loss.lam", (*self.lams, *self.further_lams.get(name, ()))
        return "optimizer.weight_decay", self.decays


PAPERS_SETTING = Setting("")
OTHER_SETTINGS = (
    Setting("images10/", {"images_per_class": 10}, losses=FEW_LOSSES, rates=FEW_RATES, decays=FEW_IMAGES_DECAYS),
    Setting("images50/", {"images_per_class": 50}, losses=FEW_LOSSES, rates=FEW_RATES, decays=FEW_IMAGES_DECAYS),
    Setting("steps1000/", steps=1000, losses=FEW_LOSSES, rates=FEW_RATES),
    # The best rate falls with the length of training, so lower ones are tried.
    Setting("steps5000/", steps=5000, losses=FEW_LOSSES, rates=(0.0005, *RATES_ON_FEATURES[:6])),
)
# As many settings for cross-entropy as for losses with lam, but for two of these at an edge.
LAST_BLOCK = Setting(
    "",
    losses=(*FEW_LOSSES, "topk-p2-smooth", "topk-p4_3-smooth", "xent-temperature"),
    rates=RATES_ON_FEATURES[:11],
    decays=FEW_IMAGES_DECAYS,
    lams=(0.1, 0.3, 3.0, 10.0),
    further_lams={"topk-p2": (0.03, 0.01), "topk-p4_3": (0.03, 0.01)},
    lams_at_paper_rate={
        "xent-temperature": (1.0, 0.3, 0.1, 0.03, 0.01, 0.003),
        "topk-p2-smooth": (0.3, 0.1, 0.03),
        "topk-p4_3-smooth": (0.3, 0.1, 0.03),
    },
    variant="last_block",
)


def small() -> list[SuiteRun]:
    """Returns pretraining, the sweep on validation, then every loss on test at the setting chosen for it."""
    pretraining = SuiteRun(PRETRAIN, {"split": "validation"}, variant="small,pretrain")
    tried, final = [], []
    for name, form in IN_ALL_SUITES.items():
        base = {"split": "validation", "seeds": SWEEP_SEEDS, "checkpoint_every": 100} | form.config_fields
        for label, setting in _rates_and_lams(RATES, form.lams):
            run, start = f"sweep/{name}-{label}", PRETRAIN
            tried.append(SuiteRun(run, base, setting, candidate_for=name, variant="small", weights_of=start))
        base = {"split": "test", "seeds": FINAL_SEEDS, "checkpoint_every": 100} | form.config_fields
        final.append(SuiteRun(f"final-{name}", base, best_of=name, variant="small", weights_of=PRETRAIN))
    return [pretraining, *tried, *final]


def pretrained() -> list[SuiteRun]:
    """Returns every loss in the paper's setting at the paper's and its own rate, and a few losses in others."""
    return [
        *_at_paper_rates(PAPERS_SETTING),
        *(run for setting in (PAPERS_SETTING, *OTHER_SETTINGS) for run in _tuned(setting)),
    ]


def last_block() -> list[SuiteRun]:
    """Returns a few losses with the last block trained too, at the paper's rates and at their own."""
    return [*_at_paper_rates(LAST_BLOCK), *_tuned(LAST_BLOCK)]


def demo() -> list[SuiteRun]:
    """Returns pretraining on pairs of digits, then some losses on the ten digits, at one setting."""
    short = {"steps": 200, "eval_every": 200, "checkpoint_every": 200, "optimizer.warmup_steps": 20}
    runs = [SuiteRun(PRETRAIN, DEMO | {"split": "validation"} | short, variant="small,pretrain")]
    fields = {"seeds": DEMO_SEEDS, "steps": 100, "eval_every": 10, "checkpoint_every": 100, "loss.lam": 1.0}
    for name in IN_DEMO:
        base = DEMO | fields | {"optimizer.learning_rate": 0.1} | FORMS[name].config_fields
        runs.append(SuiteRun(f"final-{name}", base, variant="small", weights_of=PRETRAIN))
    return runs


def full() -> list[SuiteRun]:
    """Returns every loss from public weights: at the paper's rate, at all rates on validation, and at its own."""
    at_papers, tried, at_own = [], [], []
    for name, form in IN_ALL_SUITES.items():
        variant = f"loss={form.loss}"
        for seed in FULL_SEEDS:
            base = form.config_fields | {"seeds": (seed,), "export_examples": True}
            at_papers.append(SuiteRun(f"{PAPER}{name}-seed{seed}", base, variant=variant))
            at_own.append(SuiteRun(f"final-{name}-seed{seed}", base, best_of=name, variant=variant))
        base = form.config_fields | {"split": "validation", "seeds": SWEEP_SEEDS}
        for label, setting in _rates_and_lams(FULL_RATES):
            tried.append(SuiteRun(f"sweep/{name}-{label}", base, setting, candidate_for=name, variant=variant))
    return at_papers + tried + at_own


def transformer() -> list[SuiteRun]:
    """Returns each loss at the paper's rate, at all rates and strengths on validation, and at its own setting."""
    at_papers, tried, at_own = [], [], []
    for name in ON_TRANSFORMER:
        form = FORMS[name]
        validation = form.config_fields | {"split": "validation", "seeds": SWEEP_SEEDS}
        for label, setting in _rates_and_lams(RATES_OF_TRANSFORMER, STRENGTHS_OF_TRANSFORMER):
            run = f"sweep/{name}-{label}"
            tried.append(SuiteRun(run, validation, setting, candidate_for=name, variant="transformer"))
        for seed in FINAL_SEEDS:
            base = form.config_fields | {"seeds": (seed,), "export_examples": True}
            variant = f"transformer,loss={form.loss}"
            at_papers.append(SuiteRun(f"{PAPER}{name}-seed{seed}", base, variant=variant))
            at_own.append(SuiteRun(f"final-{name}-seed{seed}", base, best_of=name, variant=variant))
    return at_papers + tried + at_own


def _at_paper_rates(setting: Setting) -> Iterator[SuiteRun]:
    """Yields every loss at the rate that the config has for it: at the config's lam, and at the best one to try."""
    for name in setting.losses:
        form = FORMS[name]
        final, variant = _final(setting, form), f"{setting.variant},loss={form.loss}"
        if name not in IS_AT_1:
            yield SuiteRun(f"{PAPER}{name}", final, variant=variant)
        if name in setting.lams_at_paper_rate:
            choice = f"{name}, the paper's rate"
            for lam in setting.lams_at_paper_rate[name]:
                run = f"sweep/{name}-papers-rate-lam{lam:g}"
                yield SuiteRun(
                    run, _validation(setting, form), {"loss.lam": lam}, candidate_for=choice, variant=variant
                )
            yield SuiteRun(f"{PAPER_LAM}{name}", final, best_of=choice, variant=variant)


def _tuned(setting: Setting) -> Iterator[SuiteRun]:
    """Yields for each loss the rates, decays or lams at the best of them, and the best of all on test."""
    variant = f"{setting.variant},steps={setting.steps}"
    for name in setting.losses:
        form = FORMS[name]
        base, sweep = _validation(setting, form), f"{setting.prefix}sweep/{name}"
        best = f"{setting.prefix}{name}"
        at_best_rate = f"{setting.prefix}{IS_AT_1.get(name, name)}, rate"
        for label, tried in () if name in IS_AT_1 else _rates_and_lams(setting.rates, form.temperatures):
            yield SuiteRun(f"{sweep}-{label}", base, tried, candidate_for=at_best_rate, variant=variant)
        field, values = setting.tried_at_best_rate(name)
        for value in values:
            run = f"{sweep}-{field.split('.')[-1].removeprefix('weight_')}{value:g}"
            yield SuiteRun(run, base, {field: value}, candidate_for=best, best_of=at_best_rate, variant=variant)
        yield SuiteRun(f"{setting.prefix}final-{name}", _final(setting, form), best_of=best, variant=variant)


def _validation(setting: Setting, form: Form) -> dict[str, Any]:
    fields = {"split": "validation", "seeds": SWEEP_SEEDS, "checkpoint_every": setting.steps}
    return {**fields, **setting.fields, **form.config_fields}


def _final(setting: Setting, form: Form) -> dict[str, Any]:
    return _validation(setting, form) | {"split": "test", "seeds": FINAL_SEEDS, "export_examples": True}


def _rates_and_lams(rates: Sequence[float], lams: Sequence[float] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each rate, with each lam if there are any: the end of a run's name (`lr0.1-lam1`), and the fields."""
    for lam in lams or (None,):
        for rate in rates:
            if lam is None:
                yield f"lr{rate:g}", {"optimizer.learning_rate": rate}
            else:
                yield f"lr{rate:g}-lam{lam:g}", {"optimizer.learning_rate": rate, "loss.lam": lam}


PRESETS: dict[str, Callable[[], list[SuiteRun]]] = {
    "small": small,
    "pretrained": pretrained,
    "last_block": last_block,
    "transformer": transformer,
    "demo": demo,
    "full": full,
}
SUITE = Suite(
    recipe=RECIPE,
    presets=PRESETS,
    chosen_by="mean_topk_error",
    shown=("test_accuracy/1", "test_accuracy/3", "valid_accuracy/1", "valid_accuracy/3", "mean_topk_error"),
    report=report.make,
)

if __name__ == "__main__":
    console.run(lambda arguments: command.main(SUITE, arguments))
