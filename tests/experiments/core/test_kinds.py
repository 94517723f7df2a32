"""Overrides of a kind, and of what only some kinds read: they do what they say, or are refused in a line."""

import importlib
import re

import pytest

from experiments.cifar100_vit.losses import LOSSES
from experiments.core import cli
from experiments.core.config import load
from experiments.core.errors import UsageError
from experiments.core.kinds import dotted
from experiments.mnist_pruning.methods import METHODS
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe_clusters.kinds import NAMES

# The experiment, how its variants are named, its field, and its kinds.
EXPERIMENTS = {
    "mnist_pruning": (":{}", "method", METHODS),
    "cifar100_vit": (":features,loss={}", "loss.name", LOSSES),
    "vmoe": (":tokens,router={}", "router.name", ROUTERS),
    "vmoe_clusters": (":router={}", "router.name", NAMES),
}
CHANGES = [
    (experiment, first, kind)
    for experiment, (_, _, kinds) in EXPERIMENTS.items()
    for first in list(kinds)[1:2]
    for kind in kinds
]


def parsed(experiment, variant, *overrides):
    """The recipe, and the config of a command line."""
    recipe = importlib.import_module(f"experiments.{experiment}.experiment").RECIPE
    given = [f"--config=configs/{experiment}.py{variant}", "--workdir=w", *(f"--config.{each}" for each in overrides)]
    return recipe, cli.parse(recipe, given)[1]


def refused(*line):
    """Returns the line with which a command line is refused; empty if it is not."""
    try:
        parsed(*line)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("experiment", "first", "kind"), CHANGES)
def test_kind_override_equals_its_variant(experiment, first, kind):
    """Refusals name the variant to choose, and what else it sets."""
    variant, field, _ = EXPERIMENTS[experiment]
    overrides = [f"{field}={kind}"]
    recipe, of_variant = parsed(experiment, variant.format(kind))
    if said := refused(experiment, variant.format(first), *overrides):
        refusal = r"is not allowed: it must be chosen by --config=(\S+), which sets (.*), too"
        chosen, lacks = re.fullmatch(rf"config\.{field}='{kind}' {refusal}", said).groups()
        assert dotted(load(chosen)) == dotted(of_variant)
        overrides += lacks.replace("config.", "").replace("'", "").split(", ")
    found, wanted = dotted(parsed(experiment, variant.format(first), *overrides)[1]), dotted(of_variant)
    differ = {name for name in wanted if found[name] != wanted[name] and recipe.kinds.is_read(name, wanted)}
    assert differ <= set(recipe.kinds.ignores.get(kind, ()))


@pytest.mark.parametrize(
    ("experiment", "variant", "override", "why"),
    [
        (
            "vmoe",
            ":tokens",
            "router.factor=1000",
            "left at 2.0: with config.router.name=.* nothing reads it",
        ),
        ("vmoe", ":tokens", "router.lam.end=0.2", "config.router.lam.schedule='constant' nothing reads it"),
        ("vmoe", ":tokens,router=dense", "router.noise=0.5", "with config.router.name='dense' nothing reads it"),
        (
            "vmoe",
            "",
            "model.variant=B/16",
            "size=B/16, which sets config.moe.blocks=(9, 11), config.moe.group_images=2",
        ),
        ("vmoe", "", "dataset=imagenet21k", "data=imagenet21k, .* config.loss='sigmoid'"),
        ("vmoe_clusters", ":router=best", "router.capacity=50", "with config.router.name='best' nothing reads it"),
        ("mnist_pruning", ":hard", "lam.start=3", "'hard' and config.lam.schedule='constant' nothing"),
        ("mnist_pruning", ":mask_straight_through", "mask.num_samples=3", "config.mask.name=.* nothing reads it"),
        ("cifar100_vit", ":loss=xent", "loss.k=5", "with config.loss.name='xent' nothing reads it"),
    ],
)
def test_unread_overrides_are_refused(experiment, variant, override, why):
    name = override.partition("=")[0]
    said = refused(experiment, variant, override)
    assert said.startswith(f"config.{name}=")
    assert re.search(re.escape(why).replace(r"\.\*", ".*"), said), said
    usual = dotted(parsed(experiment, variant)[1])[name]
    assert dotted(parsed(experiment, variant, f"{name}={usual}")[1])[name] == usual


@pytest.mark.parametrize(
    ("experiment", "variant", "overrides"),
    [
        ("vmoe", ":tokens", ["router.factor=3", "router.k=0"]),
        ("vmoe", ":small", ["dataset=digits", "model.variant=mu/4"]),
        ("mnist_pruning", ":annealed,network=vit", ["method=hard"]),
        ("mnist_pruning", "", ["method=mask_straight_through", "mask.name=lapsum", "mask.strength=0.2"]),
    ],
)
def test_other_overrides_are_taken(experiment, variant, overrides):
    fields = dotted(parsed(experiment, variant, *overrides)[1])
    for name, _, value in (override.partition("=") for override in overrides):
        assert fields[name] == type(fields[name])(value)
