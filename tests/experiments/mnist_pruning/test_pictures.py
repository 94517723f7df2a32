"""The images of a pruned network are those of what its forward pass sees."""

import jax
import numpy as np

from experiments.core.input import dataset as data_lib
from experiments.mnist_pruning.experiment import RECIPE
from tests.experiments.support import small_config


def test_images_of_the_first_layer_have_the_weights_that_are_kept():
    config = small_config("hard", density=0.1)
    experiment = RECIPE.build(config, data_lib.load(config))
    made = jax.jit(lambda key: experiment.pictures(experiment.init(key)))(jax.random.key(0))
    images = np.asarray(made["first_layer"])
    assert images.shape == (10, 8, 8, 3)
    coloured = (images != 1).any(axis=-1)
    assert coloured.sum() == 64  # of 640
    of_units = coloured.sum(axis=(1, 2)).tolist()
    assert of_units == sorted(of_units, reverse=True)
