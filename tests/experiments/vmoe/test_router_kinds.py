"""A router is one entry: the experiment, the suites, the config, the table and the figure find it there."""

import jax.numpy as jnp
import matplotlib as mpl
import pytest

from experiments.core import config_file
from experiments.core.config import require
from experiments.core.errors import UsageError
from experiments.core.report.style import RED, STYLE
from experiments.vmoe import routers
from experiments.vmoe.experiment import RECIPE, make_router
from experiments.vmoe.report import figures, naming, table
from experiments.vmoe.router_kinds import ROUTERS, RouterKind
from experiments.vmoe.suite.__main__ import SUITE
from tests.experiments.support import ROOT
from tests.experiments.vmoe.tiny import tiny_config
from tests.scripts.workdirs import write_vmoe


@pytest.fixture
def single(monkeypatch):
    """The entry of a router that there is not: one expert of each token."""
    kind = RouterKind(
        lambda fields, shape, lam: routers.TokenChoice(1, shape.capacity, fields.priority),
        lambda fields: f"a single expert, {fields['priority']}",
        setting=lambda fields: f"noise = {fields['noise']:g}",
        score="gates",
        validate=lambda fields: require(fields.noise < 100, "router.noise", fields.noise, "below 100"),
        validate_shape=lambda fields, shape, num_experts: require(shape.k > 7, "router.k", shape.k, "above 7"),
    )
    monkeypatch.setitem(ROUTERS, "single", kind)


@pytest.mark.usefixtures("single")
def test_a_router_is_one_entry_for_training():
    path = ROOT / "configs/vmoe.py"
    assert config_file.of_file(path, "small,router=single").router.score == "gates"
    with pytest.raises(UsageError, match="one of hard, relaxed, token_choice, soft, single"):
        config_file.of_file(path, "router=magic")
    assert make_router(tiny_config(router__name="single"), jnp.float32(0)).selected == 1
    for fields, message in (
        ({"router__name": "magic"}, "one of hard, relaxed, token_choice, soft, single"),
        ({"router__noise": 100.0}, r"^config\.router\.noise=100\.0 .* below 100"),
        ({"router__name": "single", "router__k": 7}, r"^config\.router\.k=7 .* above 7"),
    ):
        with pytest.raises(UsageError, match=message):
            RECIPE.validate(tiny_config(**fields))
    RECIPE.validate(tiny_config(router__k=7))  # what one router cannot do is no matter to another
    for preset in ("demo", "small"):
        (run,) = [run for run in SUITE.presets[preset]() if "single" in run.name]
        assert (run.name, run.variant) == ("final-single", "small,router=single")


def test_a_router_is_one_entry_for_the_report(tmp_path, request):
    precisions = [[1.0, 1.0], [20.0, 24.0]]
    write_vmoe(tmp_path / "hard", precisions)
    write_vmoe(tmp_path / "single", precisions, router__name="single")
    table.make(tmp_path)
    reason = "config.router.name='single' is none of hard, relaxed, token_choice, soft"
    assert f"`single`: {reason}" in (tmp_path / "table.md").read_text()
    request.getfixturevalue("single")
    table.make(tmp_path)
    assert "| a single expert, order | learning rate 3e-3, noise = 1 | 22.00 ± " in (tmp_path / "table.md").read_text()
    with mpl.rc_context(STYLE):
        whole, _ = figures.figure7(naming.final(naming.load(tmp_path)[0])).axes
    _, line = whole.get_lines()
    assert (line.get_color(), line.get_linestyle()) == (RED, "-")  # the first that is free
    assert line.get_label().startswith("a single expert, order: 22.00 ± ")
