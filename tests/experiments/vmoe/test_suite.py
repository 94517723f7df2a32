"""The suites of V-MoE: their runs are sound, and compare like with like."""

import jax
import pytest

from experiments.vmoe.suite import SUITE
from tests.experiments.support import assert_sound, suite_configs


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)
    assert {config.accelerator for _, config in suite_configs(SUITE, preset)} == {preset == "full"}
