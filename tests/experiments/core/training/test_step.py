"""What is compiled follows from shapes: it is the same without data, and takes what the feeds hand out."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from configs import cifar100_vit
from experiments.cifar100_vit.experiment import RECIPE as VIT
from experiments.core.errors import UsageError
from experiments.core.input import dataset
from experiments.core.input.outline import outline
from experiments.core.training import evaluation, train
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.step import Program
from tests.experiments.support import on_one_device
from tests.experiments.toy import RECIPE, toy_config

SMALL = {
    "dataset": "digits",
    "batch_size": 50,
    "eval_batch_size": 100,
    "steps": 10,
    "optimizer.warmup_steps": 1,
    "checkpoint_every": 10,
    "eval_every": 10,
}


def traced_evaluation(program):
    with jax.set_mesh(program.mesh):
        return evaluation.make(program).trace(program.state.params).lower().as_text()


@pytest.mark.parametrize(
    ("recipe", "config", "fields"),
    [
        (
            VIT,
            cifar100_vit.get_config("small"),
            {
                "model.depth": 1,
                "input.augment_on": "host",
                "input.recipe": "none",
                "split": "validation",
                "validation_size": 300,
            },
        ),
    ],
    ids=["vit from the host"],
)
def test_outline_lowers_to_same_program(recipe, config, fields):
    on_one_device(config, SMALL, fields)
    train.check_fields(recipe, config)
    real, outlined = (Program(recipe, config, load(config)) for load in (dataset.load, outline))
    assert real.trace().lower().as_text() == outlined.trace().lower().as_text()
    assert traced_evaluation(real) == traced_evaluation(outlined)


def test_devices_are_those_given():
    config = toy_config(mesh={"data": -1, "fsdp": 2})
    config = mesh_lib.of_devices(config, 4)
    assert config.mesh.to_dict() == {"data": 2, "fsdp": 2, "expert": 1}
    train.check_fields(RECIPE, config, 4)
    devices = jax.devices()[4:]
    program = Program(RECIPE, config, dataset.load(config), devices)
    assert isinstance(program.mesh, Mesh)
    assert set(program.mesh.devices.flat) == set(devices)


def test_mesh_must_multiply_to_device_count():
    config = toy_config(mesh={"data": 4, "fsdp": 4}, batch_size=32)
    mesh_lib.validate(config, 16)
    with pytest.raises(UsageError, match=r"config\.mesh=.* multiply to the 8 devices"):
        mesh_lib.validate(config)
    with pytest.raises(UsageError, match=r"config\.mesh=.* multiply to the 12 devices"):
        mesh_lib.of_devices(config, 12)


def test_arguments_do_not_change_the_program():
    arguments = ("optimizer.learning_rate", "loss.lam")
    rng = np.random.default_rng(0)
    examples = {"image": rng.normal(size=(100, 8)).astype(np.float32), "label": np.arange(100, dtype=np.int32) % 10}
    data = dataset.Data(examples, examples, 10, "test")

    def made(**fields):
        config = cifar100_vit.get_config("features,loss=topk")
        config.arguments = ()
        on_one_device(config, SMALL, fields)
        train.check_fields(VIT, config)
        return Program(VIT, config, data)

    with pytest.raises(UsageError, match=r"config\.arguments=\('optimizer\.weight_decay',\)"):
        made(arguments=("optimizer.weight_decay",)).trace()
    other = {"optimizer__learning_rate": 0.3, "loss__lam": 0.7}
    program, same = made(arguments=arguments), made(arguments=arguments, **other)
    assert program.trace().lower().as_text() == same.trace().lower().as_text()
    assert traced_evaluation(program) == traced_evaluation(same)
    # With the other values as arguments, the loss and the update are those of a config that has them.
    params = jax.eval_shape(same.experiment.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), params)
    batch = {name: array[:4] for name, array in examples.items()}

    def loss_and_update(arguments):
        experiment = same.experiment_of(arguments)
        optimizer = experiment.optimizer
        state = optimizer.init(params)
        with jax.numpy_dtype_promotion("standard"):  # as in training
            update, _ = optimizer.update(params, optimizer.update(params, state)[1])
        return experiment.loss(params, batch, None, None)[0], update

    found, wanted = (jax.jit(loss_and_update)(arguments) for arguments in (same.arguments, {}))
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-5), found, wanted)
