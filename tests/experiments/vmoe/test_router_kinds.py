"""Kinds of routers: what of the config each is made of, and what is called annealed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core import config as config_lib
from experiments.core.errors import UsageError
from experiments.core.kinds import dotted
from experiments.core.training.optimizer import lam_schedule
from experiments.vmoe import routers
from experiments.vmoe.experiment import RECIPE, make_router
from experiments.vmoe.measures import measure
from experiments.vmoe.router_kinds import KINDS, ROUTERS
from tests.experiments.support import ROOT
from tests.experiments.vmoe.tiny import tiny_config

PATH = ROOT / "configs/vmoe.py"


@pytest.mark.parametrize("name", ROUTERS)
def test_router_needs_only_fields_it_reads(name):
    config = config_lib.load(f"{PATH}:small,router={name}")
    fields = dotted(config)
    for field in fields:
        if not KINDS.is_read(field, fields) and field.count(".") == 1:
            del config.router[field.removeprefix("router.")]
    assert make_router(config, jnp.float32(0.1)) is not None


LOGITS = np.random.default_rng(0).normal(size=(1, 160, 8)).astype(np.float32)  # the group of the tiny setting


def test_annealed_ends_as_the_hard_router():
    config = tiny_config("small,router=annealed")
    lam_of = lam_schedule(config.router.lam, config.router.hard_after)

    @jax.jit
    def combine_and_dropped(progress):
        routed = make_router(config, lam_of(progress))(routers.Logits(LOGITS, LOGITS))
        return routed.combine, measure(routed)["dropped_mass"][0]

    hard = jax.jit(routers.HardExpertChoice(config.router.k, "logits"))(routers.Logits(LOGITS, LOGITS)).combine
    (start, dropped), (middle, _), (end, _) = (combine_and_dropped(np.float32(at)) for at in (0, 0.5, 1))
    supports = [np.count_nonzero(combine) for combine in (start, middle, end)]
    assert supports[0] > supports[1] > supports[2] == 8 * config.router.k
    np.testing.assert_allclose(end, hard, rtol=1e-6)
    assert dropped > 5


def test_nothing_else_is_called_annealed():
    fields = {"router__hard_after": 1.0}
    with pytest.raises(UsageError, match=r"^config\.router\.hard_after=1\.0 .* below 1 for .*annealed"):
        RECIPE.validate(tiny_config("small,router=annealed", **fields))
    RECIPE.validate(tiny_config("small,router=annealed", router__name="relaxed", **fields))
