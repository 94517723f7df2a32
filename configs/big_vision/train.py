"""big_vision's `train.py`, with the losses of this repository registered: see `cifar100_vit.py` for the commands.

big_vision looks up its losses by name in `big_vision.utils`, and calls them with logits [B, n] and one-hot labels [B,
n]. Registered are

- `fine_tuning_loss`: that of `experiments.cifar100_vit.losses`, with the arguments in `config.fine_tuning_loss`;
- `top1_error`, `top2_error`, ...: 1 if the class is not among the largest logits, for the classification evaluator.

Weights at a public address are first downloaded by our code, once, so TensorFlow needs no access to Google Cloud.
"""

from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import ml_collections
from absl import app, flags

import ops
from configs.big_vision.cifar100_vit import MAX_K
from experiments.cifar100_vit.losses import LOSSES, fine_tuning_loss
from experiments.core import console
from experiments.core.errors import UsageError
from experiments.vision import download


def register(utils: ModuleType, config: ml_collections.ConfigDict) -> None:
    """Adds the losses to `utils`, which is `big_vision.utils`.

    Raises:
      UsageError: `config.fine_tuning_loss` has a value that is not allowed.
    """
    try:
        loss = fine_tuning_loss(**config.fine_tuning_loss)
    except ValueError as error:
        raise UsageError(f"config.fine_tuning_loss: {error}") from error
    if LOSSES[config.fine_tuning_loss.name].single_label:
        if config.get("mixup"):
            raise UsageError(
                f"config.mixup={dict(config.mixup)} is not allowed with config.fine_tuning_loss.name="
                f"{config.fine_tuning_loss.name!r}, a loss of one label for each image: it must be left out"
            )
        loss = _of_one_label(loss)
    named = {"fine_tuning_loss": loss} | {f"top{k}_error": _topk_error(k) for k in range(1, MAX_K + 1)}
    for name, per_example in named.items():
        if hasattr(utils, name):
            raise RuntimeError(f"big_vision.utils has a {name} of its own")
        setattr(utils, name, _as_big_vision_calls(per_example))


def main(argv: list[str]) -> None:
    """Registers the losses, and trains."""
    from big_vision import train, utils

    config = flags.FLAGS.config
    register(utils, config)
    if config.model_init.startswith(download.SCHEMES):
        config.model_init = str(download.fetch(config.model_init))
    train.main(argv)


def _topk_error(k: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def error(logits: jax.Array, labels: jax.Array) -> jax.Array:
        return 1.0 - ops.topk_accuracy(logits, labels.argmax(axis=-1), k).astype(jnp.float32)

    return error


def _of_one_label(loss: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda logits, labels: loss(logits, labels.argmax(axis=-1))


def _as_big_vision_calls(per_example: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """Returns the mean of a loss over examples; with `reduction=False` its values [B]."""

    def loss(*, logits: jax.Array, labels: jax.Array, reduction: bool = True) -> jax.Array:
        losses = per_example(logits, labels)
        return losses.mean() if reduction else losses

    return loss


def _parse(argv: list[str]) -> list[str]:
    try:
        import big_vision.train  # noqa: F401  (defines the flags)
    except ModuleNotFoundError as error:
        if error.name != "big_vision":
            raise
        raise UsageError("big_vision is not on PYTHONPATH: see configs/big_vision/cifar100_vit.py") from error
    return flags.FLAGS(argv)


if __name__ == "__main__":
    console.run(lambda arguments: app.run(main, flags_parser=_parse))
