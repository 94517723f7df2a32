"""A transformer whose attention reads k keys, trained on from a dense one, and evaluated with the k best keys.

The run with `selector.name=dense` trains all but the indexers, and exports every seed's parameters. All others begin
with those of their seeds (`config.pretrained`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from experiments.core.config import require, require_one_of
from experiments.core.input.dataset import SPLITS, Data
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Metrics, Params, Recipe
from experiments.core.training.recorder import load_pretrained
from experiments.sparse_attention import task as tasks
from experiments.sparse_attention.model import Mode, Output, Transformer
from experiments.sparse_attention.selectors import KINDS, SELECTORS

# The numbers of the first examples for evaluation; those for training begin at 0.
_FIRST = {"validation": 2**29, "test": 2**30}
_COUNTED = 16  # examples on which keys with a gradient are counted
TRAINED = ("all", "indexer")


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the fields that the trainer does not know."""
    task, model, selector = config.task, config.model, config.selector
    require_one_of("task.name", task.name, tasks.NAMES)
    require(config.dataset == task.name, "dataset", config.dataset, f"{task.name!r}, as config.task.name")
    unit = 4 * tasks.RIGHT[task.name]
    require(
        task.length >= 16 and task.length % unit == 0, "task.length", task.length, f"a multiple of {unit} from 16 on"
    )
    require(task.examples > 0, "task.examples", task.examples, "positive")
    for name in ("layers", "heads", "index_width", "width"):
        require(model[name] > 0, f"model.{name}", model[name], "positive")
    require(model.width % model.heads == 0, "model.width", model.width, f"a multiple of the {model.heads} heads")
    layers = set(range(model.layers))
    different = 0 < len(model.sparse) == len(set(model.sparse))
    require(different and set(model.sparse) <= layers, "model.sparse", model.sparse, f"different layers of {layers}")
    require_one_of("selector.name", selector.name, SELECTORS)
    require(0 < selector.k < task.length, "selector.k", selector.k, f"in [1, {task.length})")
    most = task.length - selector.k
    require(0 <= selector.spare <= most, "selector.spare", selector.spare, f"in [0, {most}]")
    require(selector.weight >= 0, "selector.weight", selector.weight, "at least 0")
    optimizer.validate_lam(selector.lam, "selector.lam")
    require_one_of("trained", config.trained, TRAINED)
    goes_on = selector.name != "dense" or task.name == "several"
    allowed = "the parameters of a dense run; empty for a dense run, unless of several"
    require(bool(config.pretrained) == goes_on, "pretrained", config.pretrained, allowed)


def load(config: ml_collections.ConfigDict) -> Data:
    """Returns the numbers of the examples, from which the device makes tokens; a run sees each once."""
    train = np.arange(config.steps * config.batch_size, dtype=np.int32)
    evaluation = _FIRST[config.split] + np.arange(config.task.examples, dtype=np.int32)
    fingerprint = tasks.fingerprint() if config.task.name == "text" else ""
    return Data({"label": train}, {"label": evaluation}, 1, SPLITS[config.split], fingerprint=fingerprint)


def dense_params(config: ml_collections.ConfigDict) -> Params:
    """Reads the parameters of the config's seeds that a dense run has exported, with their axis if there are several.

    Raises `UsageError` if there is none, or it was not dense, or of another task or other seeds. The dense run of
    several goes on from one of recall: from random weights it does not learn to match keys.
    """
    of_dense, params = load_pretrained(config.pretrained)
    task = config.task.to_dict() | ({"name": "recall"} if config.selector.name == "dense" else {})
    fields = of_dense.to_dict()
    same = fields.get("selector", {}).get("name") == "dense" and fields.get("task") == task
    require(same, "pretrained", config.pretrained, f"of a dense run of the same length, and of the task {task['name']}")
    seeds = list(of_dense.seeds)
    known = set(config.seeds) <= set(seeds)
    require(known, "seeds", config.seeds, f"of those of the dense run, {seeds}")
    rows = [seeds.index(seed) for seed in config.seeds]
    if len(seeds) == 1:
        return params
    return jax.tree.map(lambda leaf: leaf[rows if len(rows) > 1 else rows[0]], params)


def of_each(logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns losses, means over right answers, and the percentage of these among the R largest logits, [B].

    Args:
      logits: [B, L, V].
      targets: [B, L, R] int32, NONE where nothing is asked.
    """
    asked = targets != tasks.NONE
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(targets, 0), axis=-1)
    _, answers = jax.lax.top_k(logits, targets.shape[-1])
    correct = (answers[..., None] == targets[..., None, :]).any(axis=-2)
    return jnp.mean(losses, axis=(1, 2), where=asked), 100.0 * jnp.mean(correct, axis=(1, 2), where=asked)


def build(config: ml_collections.ConfigDict, data: Data) -> Experiment:
    """Returns the experiment on examples whose numbers are the labels of `data`."""
    task, selector, model = config.task, config.selector, config.model
    transformer = Transformer(
        tasks.vocabulary(task.name, task.length), model.width, model.layers, model.heads, model.index_width,
        tuple(model.sparse), model.previous, SELECTORS[selector.name], selector.k, selector.k + selector.spare,
    )  # fmt: skip
    lam_of = optimizer.lam_schedule(selector.lam)

    def init(key: jax.Array) -> Params:
        nothing = Mode(False, jnp.ones(()), jnp.zeros(()))
        return transformer.init(key, jnp.zeros((1, task.length), jnp.int32), nothing)["params"]

    def forward(params: Params, tokens: jax.Array, progress: jax.Array, shift: Any = 0.0, *, training: bool) -> Output:
        mode = Mode(training, jnp.asarray(lam_of(progress), jnp.float32), progress)
        output: Any = transformer.apply({"params": params}, tokens, mode, shift)
        return output

    def loss(params: Params, batch: Batch, key: jax.Array, progress: jax.Array) -> tuple[jax.Array, Metrics]:
        examples = tasks.sample(task.name, task.length, batch["label"], "train")
        output = forward(params, examples.tokens, progress, training=True)
        value = of_each(output.logits, examples.targets)[0].mean()
        return value + selector.weight * output.teaching, {"loss": value}

    def keys_of(params: Params, examples: tasks.Examples, progress: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns how many keys of a query have a weight in training, and how many scores get a gradient.

        In the last layer, over the queries that have a target. What rounding leaves of a weight counts, too.
        """
        some = jax.tree.map(lambda leaf: leaf[:_COUNTED], examples)
        asked = some.targets[..., 0] != tasks.NONE

        def objective(shift: jax.Array) -> tuple[jax.Array, jax.Array]:
            output = forward(params, some.tokens, progress, shift, training=True)
            value = of_each(output.logits, some.targets)[0].mean() + selector.weight * output.teaching
            return value, (output.selection.weights != 0).sum(axis=-1)  # type: ignore[union-attr]

        zeros = jnp.zeros((*some.tokens.shape, task.length))
        gradient, read = jax.grad(objective, has_aux=True)(zeros)
        with_gradient = (gradient != 0).sum(axis=-1)
        return jnp.mean(read, where=asked), jnp.mean(with_gradient, where=asked)

    def evaluate(params: Params, batch: Batch, progress: jax.Array) -> Metrics:
        examples = tasks.sample(task.name, task.length, batch["label"], config.split)
        output = forward(params, examples.tokens, progress, training=False)
        losses, accuracies = of_each(output.logits, examples.targets)
        unprefixed = {"loss": losses, "bits": losses / np.log(2.0).astype(np.float32), "accuracy": accuracies}
        metrics: Metrics = {f"{data.prefix}_{name}": value for name, value in unprefixed.items()}
        metrics["keys_read"], metrics["keys_with_gradient"] = keys_of(params, examples, progress)
        if output.selection.keys is not None and task.name != "text":  # type: ignore[union-attr]
            is_right = output.selection.keys[..., None] == examples.right[..., None, :]  # type: ignore[union-attr]
            asked = examples.right != tasks.NONE
            metrics[f"{data.prefix}_found"] = 100.0 * jnp.mean(is_right.any(axis=-2), axis=(1, 2), where=asked)
        return metrics

    labels = jax.tree_util.tree_map_with_path(
        lambda path, leaf: "learned" if config.trained == "all" or "index" in jax.tree_util.keystr(path) else "fixed",
        jax.eval_shape(init, jax.random.key(0)),
    )
    updates = {"learned": optimizer.make(config), "fixed": optax.set_to_zero()}
    pretrained = dense_params(config) if config.pretrained else None
    return Experiment(
        init,
        loss,
        evaluate,
        optax.multi_transform(updates, labels),
        pretrained=pretrained,
        pretrained_by_seed=pretrained is not None and len(config.seeds) > 1,
        headline=(f"{data.prefix}_accuracy",),
    )


RECIPE = Recipe("sparse_attention", validate, build, load, kinds=KINDS)
