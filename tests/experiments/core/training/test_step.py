"""Where parameters and what the optimizer keeps of them lie."""

import jax
import numpy as np

from experiments.core.input import dataset as data_lib
from experiments.core.training import mesh as mesh_lib
from experiments.core.training import step
from tests.experiments.toy import build, toy_config


def test_large_parameters_and_moments_are_divided_and_begin_as_on_one_device():
    config = toy_config(mesh={"data": 2, "fsdp": 4})
    experiment = build(config, data_lib.load(config))
    mesh, alone = mesh_lib.make(config), mesh_lib.make(toy_config())
    seeds = np.int32(3)
    state = step.init(experiment, seeds, mesh)
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.shape == (64, 512)]
    assert len(moments) == 2
    for leaf in (state.params["first"]["kernel"], *moments):
        assert {shard.data.shape for shard in leaf.addressable_shards} == {(64, 128)}
    assert state.params["second"]["kernel"].is_fully_replicated  # 5,120 entries
    expected = step.init(experiment, seeds, alone)
    jax.tree.map(np.testing.assert_array_equal, state, expected)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == jax.tree.map(
        lambda leaf: leaf.sharding, step.abstract(experiment, seeds, mesh)
    )
