"""What all methods have in common: their fields and their entries."""

import jax
import jax.numpy as jnp
import pytest

from configs import mnist_pruning
from experiments.core import config as config_lib
from experiments.core.config import require
from experiments.core.errors import UsageError
from experiments.core.kinds import dotted
from experiments.mnist_pruning import report
from experiments.mnist_pruning.experiment import RECIPE
from experiments.mnist_pruning.methods import KINDS, METHODS
from experiments.mnist_pruning.methods.method import PruningMethod, by_number
from experiments.mnist_pruning.suite.__main__ import SUITE
from tests.experiments.support import ROOT, small_config
from tests.scripts.workdirs import write_workdir


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("density_schedule.begin", 1.0),
        ("density_schedule.every", 0),
        ("topkast.penalty", -1.0),
        ("prune_layers", (1, 4)),
    ],
)
def test_a_field_out_of_range_is_named(field, value):
    """Others are in `test_hostile_commands.py`."""
    config = small_config()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(UsageError, match=rf"^config\.{field}=.* must be "):
        RECIPE.validate(config)


def test_a_method_is_one_entry(tmp_path, monkeypatch):
    """Config, validation, the demo and the report find it there."""
    first = PruningMethod(
        lambda config, total_steps: by_number(lambda w, k: w.at[k:].set(0), config),
        validate=lambda config: require(config.hidden != (9, 9), "hidden", config.hidden, "wider"),
        density_schedules=("cubic",),
        keeps_all=False,
    )
    assert "final-layers123-first" not in {run.name for run in SUITE.presets["demo"]()}
    monkeypatch.setitem(METHODS, "first", first)
    monkeypatch.setitem(KINDS.reads, "first", first.reads)
    monkeypatch.setitem(report.LOOKS, "first", ("the first k", ("#123456", ":")))
    (run,) = (run for run in SUITE.presets["demo"]() if run.base["method"] == "first")
    assert run.name == "final-layers123-first"
    RECIPE.validate(SUITE.config(run, tmp_path))
    config = config_lib.load(f"{ROOT}/configs/mnist_pruning.py:first")
    assert (config.method, config.density_schedule.name) == ("first", "cubic")
    for fields, message in (
        ({"method": "magic"}, r"^config\.method='magic' .* one of dense, .*, str, first$"),
        ({"method": "hard", "hidden": (9, 9)}, r"^config\.hidden=\(9, 9\) .* must be wider"),
        ({"method": "first"}, r"^config\.density_schedule\.name='constant' .* must be cubic for first"),
        (
            {"method": "first", "density": 1.0, "density_schedule__name": "cubic"},
            r"^config\.density=1\.0 .* must be in \(0, 1\) for first",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            RECIPE.validate(small_config(**fields))
    write_workdir(tmp_path / "run", [[90.0, 88.0], [4.0, 5.0]], method="first", density_schedule__name="cubic")
    found, problems = report.PRESENTATION.load(tmp_path)
    assert not problems
    assert "| the first k |" in "\n".join(report.tables(found, frozenset()))
    (line,) = report.figures(found)["figure5-layers123"].axes[0].get_lines()
    assert (line.get_color(), line.get_linestyle()) == ("#123456", ":")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_without_the_fields_that_it_does_not_read(name):
    config = mnist_pruning.get_config(name)
    fields = dotted(config)
    for field in fields:
        section, _, leaf = field.rpartition(".")
        if not KINDS.is_read(field, fields):
            del (config[section] if section else config)[leaf]
    method = METHODS[name].make(config, 10)

    def trained(w, key, progress):
        state = method.init(w, key)
        w, state = method.after_update(w, state, w, progress)
        return method.weights(w, state, progress, key), method.penalty(w, state, progress)

    weights, _ = jax.eval_shape(trained, jnp.ones(20), jax.random.key(0), jnp.float32(0.5))
    assert weights.shape == (20,)
