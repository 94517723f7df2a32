"""What a run of the fine-tuning experiment is called in tables and figures."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from etils import epy

from experiments.cifar100_vit.losses import KINDS, LOSSES
from experiments.core.report import results
from experiments.core.report.identity import Identity
from experiments.core.report.markdown import number
from experiments.core.report.pooled import pooled
from experiments.core.report.results import NUMBER, Problem, Run
from experiments.core.report.style import Look

with epy.lazy_imports():  # --help does without it
    from experiments.vision import efficientnet

_KNOWN: dict[str, Collection[str]] = {"loss.name": LOSSES}
PAPER = "paper/"  # in the names of runs at the paper's learning rates, where others have chosen theirs


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this experiment below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "cifar100_vit", "the fine-tuning experiment", IDENTITY.odd)


def loss(run: Run) -> str:
    """For example `top-3, p = 4/3, smooth target`."""
    return LOSSES[run.config["loss"]["name"]].label(run.config["loss"])


def look(run: Run) -> Look:
    """Of its curves."""
    return LOSSES[run.config["loss"]["name"]].look(run.config["loss"])


def setting(run: Run) -> str:
    """The hyper-parameters that are chosen, for example `learning rate 0.1, lam = 1`; weight decay, if there is any."""
    return ", ".join(_settings(run))


def _settings(run: Run) -> list[str]:
    parts = [f"learning rate {number(run.config['optimizer']['learning_rate'])}"]
    if "lam" in LOSSES[run.config["loss"]["name"]].reads:
        parts.append(f"lam = {number(run.config['loss']['lam'])}")
    if decay(run):
        parts.append(f"decay {number(decay(run))}")
    return parts


def decay(run: Run) -> float:
    """The weight decay of the optimizer."""
    return run.config["optimizer"].get("weight_decay") or 0.0


def circumstances(run: Run) -> tuple[int, int]:
    """Training images of each class (all of them: 0) and steps: in what is alike runs are compared."""
    return run.config.get("images_per_class") or 0, run.config["steps"]


def is_pretraining(run: Run) -> bool:
    """Whether the run makes the weights that others start from."""
    return bool(run.config.get("export_params"))


def final(runs: Iterable[Run]) -> list[Run]:
    """The runs on test, those that differ in their seeds alone as one, in the order of `by_loss`."""
    of_test = [run for run in runs if run.config["split"] == "test" and not is_pretraining(run)]
    # One whose own rate is the paper's is there twice, and no repetition.
    blocks = ([run for run in of_test if is_at_paper_rate(run) == at_paper] for at_paper in (True, False))
    return by_loss(run for block in blocks for run in pooled(block))


def by_circumstances(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that are compared together; first those on all images, and of them the shortest."""
    groups: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        groups.setdefault(circumstances(run), []).append(run)
    return [groups[key] for key in sorted(groups)]


def is_at_paper_rate(run: Run) -> bool:
    """Whether its learning rate was not chosen, but the paper's."""
    return PAPER in run.name


def has_features(run: Run) -> bool:
    """Whether what was trained begins at features of a frozen network."""
    return bool(run.config.get("features"))


def is_convolutional(run: Run) -> bool:
    """Whether EfficientNet-Lite0 is trained from images on."""
    return run.config.get("network") is not None


def trained(run: Run) -> str:
    """What a stand-in trains, for example `linear head on features of EfficientNet-Lite0, ImageNet-1k`."""
    if is_convolutional(run):
        return "all of EfficientNet-Lite0, ImageNet-1k"
    if not has_features(run):
        return "small network, pretrained on coarse labels"
    if run.config["features"]["layer"] == efficientnet.BEFORE_LAST_BLOCK:
        return "last block and head of EfficientNet-Lite0, ImageNet-1k"
    return "linear head on features of EfficientNet-Lite0, ImageNet-1k"


def is_cross_entropy(run: Run) -> bool:
    """Whether others are compared to it."""
    return run.config["loss"]["name"] == "xent"


def reference(run: Run, runs: Iterable[Run]) -> Run | None:
    """The first with cross-entropy in all circumstances of `run`; None if that is `run`, or there is none."""
    found = next(filter(is_cross_entropy, IDENTITY.comparable(run, runs)), None)
    return None if found is run else found


def is_everywhere(run: Run) -> bool:
    """Whether all suites have its loss."""
    return LOSSES[run.config["loss"]["name"]].everywhere


def is_tried(run: Run) -> bool:
    """Whether it was trained for a choice of hyper-parameters."""
    return run.config["split"] == "validation" and not is_pretraining(run)


def by_loss(runs: Iterable[Run]) -> list[Run]:
    """By circumstances, in the order of LOSSES; then by learning rate, lam and decay."""

    def key(run: Run) -> tuple[Any, ...]:
        fields = run.config["loss"]
        kind = (list(LOSSES).index(fields["name"]), -fields["k"], fields["target"] != "one_hot", -fields["p"])
        return (
            *circumstances(run),
            *kind,
            run.config["optimizer"]["learning_rate"],
            fields["lam"],
            decay(run),
            run.name,
        )

    return sorted(runs, key=key)


def is_stand_in(run: Run) -> bool:
    """Whether it is of another network than the paper's."""
    return (run.config.get("model") or {}).get("variant") != "B/16"


IDENTITY = Identity(
    kinds=KINDS,
    known=_KNOWN,
    baseline=reference,
    types={
        **dict.fromkeys(("dataset", "split", "loss.name", "loss.target"), str),
        **dict.fromkeys(("steps", "loss.k"), int),
        **dict.fromkeys(("loss.p", "loss.lam", "optimizer.learning_rate"), NUMBER),
        **dict.fromkeys(("optimizer.weight_decay", "images_per_class"), NUMBER | None),
        **dict.fromkeys(("features.layer", "model.variant", "network"), str | None),
        "model": dict | None,
        "features": lambda value: not value or (isinstance(value, dict) and {"layer", "size"} <= value.keys()),
    },
    parts=lambda run: [loss(run), *_settings(run)],
    told=(
        *("loss.name", "loss.k", "loss.p", "loss.lam", "loss.target"),
        *("optimizer.learning_rate", "optimizer.weight_decay"),
    ),
)
