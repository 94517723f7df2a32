"""What a run of the V-MoE experiment is called in tables and figures."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.report import results
from experiments.core.report.identity import Identity
from experiments.core.report.markdown import number
from experiments.core.report.pooled import pooled
from experiments.core.report.results import NUMBER, Problem, Run, are_whole
from experiments.vmoe.router_kinds import KINDS, ROUTERS, RouterKind

_KNOWN: dict[str, Collection[str]] = {"router.name": ROUTERS}


def load(directory: Path) -> tuple[list[Run], list[Problem]]:
    """The runs of this experiment below `directory`, by name; those of others as problems, as what is broken."""
    return results.load_of(directory, "vmoe", "the V-MoE experiment", IDENTITY.odd)


def router(run: Run) -> str:
    """For example `relaxed expert choice, p = 2, of the logits`."""
    return kind(run).label(run.config["router"])


def kind(run: Run) -> RouterKind:
    """What its router is."""
    return ROUTERS[run.config["router"]["name"]]


def setting(run: Run) -> str:
    """The hyper-parameters that are chosen, for example `learning rate 3e-3, lam = 0.1`."""
    return ", ".join(_settings(run))


def _settings(run: Run) -> list[str]:
    rate = f"learning rate {number(run.config['optimizer']['learning_rate'])}"
    return [part for part in (rate, kind(run).setting(run.config["router"])) if part]


def final(runs: Iterable[Run]) -> list[Run]:
    """The runs on test, those that differ in their seeds alone as one, in the order of `by_router`."""
    return by_router(pooled(run for run in runs if run.config["split"] == "test"))


def reference(run: Run, runs: Iterable[Run]) -> Run | None:
    """The run with the hard router that `run` is held against: for a relaxed one that of its score, if there is one.

    Its circumstances are the same. Token choice, Soft MoE and the hard router of the logits are held against the hard
    one of the gates, or what there is in its place; that one itself against none.
    """
    alike = IDENTITY.comparable(run, runs)
    hard = {other.config["router"]["score"]: other for other in alike if other.config["router"]["name"] == "hard"}
    usual = hard.get(ROUTERS["hard"].score) or next(iter(hard.values()), None)
    found = hard.get(run.config["router"]["score"], usual) if kind(run).same_score else usual
    return None if found is run else found


def by_router(runs: Iterable[Run]) -> list[Run]:
    """Short ones first, in the order of ROUTERS; then by learning rate and lam."""

    def key(run: Run) -> tuple[Any, ...]:
        fields = run.config["router"]
        place = list(ROUTERS).index(fields["name"])
        form = (fields["score"] != kind(run).score, fields["dykstra"], fields["capacity"])
        return (
            run.config["steps"],
            place,
            *form,
            run.config["optimizer"]["learning_rate"],
            fields["lam"]["start"],
            run.name,
        )

    return sorted(runs, key=key)


def is_stand_in(run: Run) -> bool:
    """Whether it is of another size than the paper's."""
    return run.config["model"]["variant"] not in ("S/32", "B/16")


def examples(run: Run) -> str:
    """What a run trains on: `cifar100`, or ImageNet's features of it, with their network."""
    features, dataset = run.config.get("features"), run.config["dataset"]
    if not features:
        return dataset
    return f"ImageNet's features of {dataset} ({features['network']} at {features['size']} pixels, frozen)"


def over_layers(values: Mapping[str, Any], metric: str | None = None) -> list[float | None]:
    """By seed the mean over the layers of experts of what a row has for each of them, or of one metric there."""
    layers = [layer if metric is None else layer[metric] for layer in values.values()]
    return [None if None in seed else float(np.mean(np.array(seed, float))) for seed in zip(*layers, strict=True)]


IDENTITY = Identity(
    kinds=KINDS,
    known=_KNOWN,
    baseline=reference,
    types={
        **dict.fromkeys(("dataset", "split", "model.variant", "router.name", "router.score"), str),
        **dict.fromkeys(("steps", "eval_every", "router.dykstra", "router.capacity"), int),
        **dict.fromkeys(("router.lam.start", "optimizer.learning_rate"), NUMBER),
        **dict.fromkeys(("features.network", "features.size"), str | int | None),
        **dict.fromkeys(("model.depth", "model.width", "moe.num_experts", "moe.group_images", "router.k"), int),
        "moe.blocks": are_whole,
    },
    parts=lambda run: [router(run), *_settings(run)],
    told=(
        *("router.name", "router.score", "router.p", "router.lam", "router.dykstra"),
        *("router.hard_after", "router.limit"),
        *("router.capacity", "router.selected", "optimizer.learning_rate"),
    ),
    earlier={"router.hard_after": 1.0},
)
