"""Records a run: its rows, a line of progress for each, and files at the end, if its config asks for them.

config.tensorboard        its rows for TensorBoard, and histograms of its parameters
config.export_params      its parameters, or what its experiment makes of them (`Experiment.exported`); seeds, if there
                          are several, are the first axis
config.export_examples    what its experiment says of each evaluated example (`Experiment.examine`)

`params.npz` has one float32 array per parameter, under its path in the tree ("Transformer/encoder_norm/scale").
`examples.npz` has arrays [S, N], of seeds and examples in the order of the data set. Fields left out are False.

The findings of `Experiment.probe`, boolean arrays [S, ...] by name on the host, are kept from row to row, in
checkpoints too.
"""

import json
import operator
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_collections
import numpy as np
from flax import traverse_util
from jax.experimental import multihost_utils
from jax.tree_util import keystr, tree_leaves_with_path

from experiments.core.config import require
from experiments.core.console import pace
from experiments.core.errors import UsageError, first_line
from experiments.core.record import hardware, metrics
from experiments.core.record.files import replacing, write_compressed, write_json
from experiments.core.record.metrics import Row, flatten
from experiments.core.record.summary import summarize
from experiments.core.record.workdir import Workdir
from experiments.core.training import optimizer
from experiments.core.training.evaluation import Evaluate
from experiments.core.training.experiment import Params, Plan
from experiments.core.training.guard import is_first
from experiments.core.training.step import Program, TrainState

_PATIENCE = 30.0  # seconds without a line
Metrics = Any  # arrays [S, K] by name, possibly nested: seeds, steps
Found = dict[str, np.ndarray]  # bool [S, ...]


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks `config.export_params` and `export_examples`."""
    for name in ("export_params", "export_examples"):
        export = config.get(name, False)
        require(isinstance(export, bool), name, export, "True or False")


def rows_before(workdir: Workdir, plan: Plan, config: ml_collections.ConfigDict, step: int) -> list[Row]:
    """Reads the rows up to that of a checkpoint after `step` steps, 0 where there is none.

    Raises `UsageError` if one is missing, or if there are rows that only a run with a checkpoint can have.
    """
    if step > 0:
        return metrics.read_until(workdir.metrics, plan.last_row(step), config.to_dict())
    # The row of the first checkpoint is written before it is.
    most = 1 + plan.checkpoint_every // plan.eval_every
    if plan.checkpoint_every < plan.total_steps and (number := len(metrics.lines(workdir.metrics))) > most:
        raise UsageError(
            f"{workdir.metrics} has {number} rows, but there is no checkpoint in {workdir.checkpoints}: put back a "
            f"copy of one, or move {workdir.metrics.name} away to train from the start"
        )
    return []


class MetricsSinceRow:
    """Reads the metrics of a call only when the next one is under way, so that devices never wait.

    `seconds` counts the time between `start` and `finish`: training, and neither compilation nor evaluation nor saving.
    """

    def __init__(self, metrics: Metrics, seconds: float = 0.0, found: Found | None = None):
        """Begins with `metrics` [S, K] and `seconds` of a part, and what the probe `found` at the last row."""
        self._metrics, self.seconds, self.found = [metrics], seconds, found or {}
        self.step_seconds: list[float] = []
        self._unread: Metrics = None
        self._last = 0.0

    def start(self) -> None:
        """Starts the clock."""
        self._last = time.perf_counter()

    def dispatched(self, metrics: Metrics) -> None:
        """Notes a call that has been dispatched (its metrics [S, K] or [K]), and waits for the one before it."""
        before, self._unread = self._unread, metrics
        if before is None:
            return
        self._metrics.append(jax.tree.map(np.atleast_2d, jax.device_get(before)))
        now = time.perf_counter()
        self.seconds += now - self._last
        self.step_seconds.append((now - self._last) / jax.tree.leaves(self._metrics[-1])[0].shape[1])
        self._last = now

    def finish(self) -> None:
        """Waits for the last call."""
        self.dispatched(None)

    @property
    def metrics(self) -> Metrics:
        """The metrics of all seeds and steps [S, K]."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._metrics)

    def means(self) -> Metrics:
        """Means over the steps [S]; NaN where there are none."""
        return jax.tree.map(lambda each: each.mean(axis=1) if each.size else np.full(len(each), np.nan), self.metrics)

    def after(self, found: Found) -> "MetricsSinceRow":
        """Begins anew after a row, of which the probe has `found` this."""
        return MetricsSinceRow(jax.tree.map(lambda values: values[:, :0], self._metrics[0]), found=found)

    def to_json(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps; as decimals, float32 come back unchanged."""
        metrics, found = jax.tree.map(np.ndarray.tolist, (self.metrics, self.found))
        return {"metrics": metrics, "seconds": self.seconds, "found": found}

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "MetricsSinceRow":
        """Returns what `to_json` was made of, less the times of its steps."""

        def arrays(lists: Any, dtype: Any) -> Any:
            return jax.tree.map(lambda values: np.asarray(values, dtype), lists, is_leaf=lambda x: isinstance(x, list))

        return MetricsSinceRow(arrays(saved["metrics"], np.float32), saved["seconds"], arrays(saved["found"], bool))


class Recorder:
    """Adds to the `rows` of a run that has taken `first_step` steps, and writes its files at the end.

    All processes take part, and the first one writes. `say` prints a line.
    """

    def __init__(
        self,
        program: Program,
        evaluate: Evaluate,
        workdir: Workdir,
        rows: list[Row],
        first_step: int,
        say: Callable[[str], None],
    ):
        self._program, self._evaluate, self._workdir, self._say = program, evaluate, workdir, say
        if probe := program.experiment.probe:
            everywhere = program.everywhere
            self._find = jax.jit(program.over_seeds(probe.find, (0, None)), out_shardings=everywhere)
            self._compare = jax.jit(jax.vmap(probe.compare), out_shardings=everywhere)
        wanted = program.config.get("tensorboard") and is_first()
        self._board = metrics.tensorboard(workdir.tensorboard, rows) if wanted else None
        self._writer = metrics.Writer(workdir.metrics if is_first() else None, rows, self._board)
        self._progress = Progress(program.experiment.headline, program.plan, first_step, say)
        self.reached = self._progress.reached

    def add(self, step: int, state: TrainState, since_row: MetricsSinceRow) -> MetricsSinceRow:
        """Evaluates the `state` after `step` steps, and adds its row; returns what the next row begins with."""
        program, plan, progress = self._program, self._program.plan, step / self._program.plan.total_steps
        evaluated = self._evaluate(state.params, progress)
        measured = {f"train_{name}": values for name, values in since_row.means().items()}
        # Experiments return other errors under their full names.
        measured |= {
            f"{program.data.prefix}_error" if name == "error" else name: each for name, each in evaluated.items()
        }
        found: Found = {}
        if program.experiment.probe:
            found = jax.device_get(self._find(state.params, np.float32(progress)))
            found = found if program.seed_axis else {name: array[None] for name, array in found.items()}
        if found:
            compared = jax.device_get(self._compare(since_row.found or found, found))
            measured |= compared if since_row.found else jax.tree.map(lambda each: np.full_like(each, np.nan), compared)
        if program.experiment.at_end and step == plan.total_steps:
            numbers = range(len(program.config.seeds)) if program.seed_axis else [...]
            of_seeds = [jax.tree.map(operator.itemgetter(number), state.params) for number in numbers]
            measured |= jax.tree.map(lambda *values: np.stack(values), *map(program.experiment.at_end, of_seeds))
        diverged = np.atleast_1d(np.asarray(state.diverged))
        before = self._writer.rows[-1]["seconds"] if self._writer.rows else 0.0
        row = {
            "epoch": plan.epochs(step),
            "step": step,
            "seconds": round(since_row.seconds + before, 4),
            "diverged": diverged.tolist(),
        } | metrics.per_seed(jax.tree.map(np.atleast_1d, measured), diverged)
        if plan.unit == "step":  # runs in epochs, of small networks, say nothing of their speed
            rate = optimizer.learning_rate(program.config, step - 1, plan.total_steps) if step else None
            row |= {"learning_rate": rate, "performance": performance(program, since_row)}
        self._writer.append(row)
        self._progress.show(row)
        return since_row.after(found)

    def finish(self, params: Params) -> None:
        """Writes what the config asks for of the parameters at the end, and the summary last."""
        program, checksums = self._program, {}
        if program.config.get("export_params"):
            exported = program.experiment.exported
            arrays = gather(jax.jit(program.over_seeds(exported))(params) if exported else params)
            if program.seed_axis and len(program.seeds) == 1:
                arrays = {name: array[0] for name, array in arrays.items()}
            if is_first():
                with replacing(self._workdir.params) as file:
                    np.savez(file, allow_pickle=False, **arrays)
        if program.config.get("export_examples"):
            examined = self._evaluate.examine(params)
            checksums = {"examples_sha256": write_compressed(self._workdir.examples, examined)} if is_first() else {}
        histograms = gather(params) if program.config.get("tensorboard") else {}
        if self._board:
            self._board.write_histograms(program.plan.total_steps, histograms)
            self._board.flush()
        if is_first():
            result = summarize(list(program.config.seeds), self._writer.rows[-1])
            result |= {"metrics_sha256": metrics.sha256_of(self._writer.rows)} | checksums
            write_json(self._workdir.summary, result)
        self._say(f"results are in {self._workdir.path}: {self._workdir.summary.name}, {self._workdir.metrics.name}")

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()
        if self._board:
            self._board.close()


def performance(program: Program, since_row: MetricsSinceRow) -> dict[str, Any]:
    """Turns the times since the last row into what a row says; None for what was not measured.

    step_seconds: median over the calls.
    images_per_second: over all calls, all seeds together.
    mfu: model FLOPs utilisation at the median step time, against dense bfloat16, where both are known.
    peak_memory_bytes: on the device, of this process, that has most.
    """
    images = program.config.batch_size * len(program.config.seeds)
    flops, peak = program.experiment.flops_per_example, hardware.peak_flops(program.mesh.devices.flat[0])
    times = since_row.step_seconds
    step_seconds = float(np.median(times)) if times else None
    rate = images / float(np.mean(times)) if times else None
    mfu = flops * images / step_seconds / (peak * program.mesh.size) if step_seconds and flops and peak else None
    rounded = {"step_seconds": step_seconds, "images_per_second": rate, "mfu": mfu}
    return {name: None if value is None else float(f"{value:.4g}") for name, value in rounded.items()} | {
        "peak_memory_bytes": hardware.memory_in_use()
    }


class Progress:
    """Prints a line for every row, and others where rows are far between."""

    def __init__(self, headline: tuple[str, ...], plan: Plan, first_step: int, say: Callable[[str], None]):
        self._headline, self._plan, self._say = headline, plan, say
        self._total, self._first = plan.count(plan.total_steps), plan.count(first_step)
        self._start = self._last = time.monotonic()

    def show(self, row: Row) -> None:
        """Prints epoch or step, headline metrics (mean over seeds), seeds lost, rate and time left, of everything."""
        parts, values_of = [], dict(flatten(row))
        for name in ("train_loss", *self._headline):
            values = [value for value in values_of[name] if value is not None]
            parts.append(f"{name} {np.mean(values):.4g}" if values else f"{name} -")
        if lost := sum(row["diverged"]):
            parts.append(f"{lost} of {len(row['diverged'])} seeds diverged")
        self._print(row["step"], parts)

    def reached(self, step: int) -> None:
        """Prints a line after a step without a row, if there has been none for a while."""
        if time.monotonic() - self._last > _PATIENCE:
            self._print(step, [])

    def _print(self, step: int, parts: list[str]) -> None:
        self._last = time.monotonic()
        done = self._plan.count(step)
        line = [f"{self._plan.unit} {done:{len(str(self._total))}}/{self._total}", *parts]
        if done > self._first:
            line.append(pace(done - self._first, self._total - self._first, self._last - self._start))
        self._say("  ".join(line))


def load_params(path: str | Path) -> tuple[ml_collections.ConfigDict, Params]:
    """Reads the config of a run and the tree of NumPy arrays that `config.export_params` has kept in its workdir."""
    workdir = Workdir(path)
    with workdir.params.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        params = traverse_util.unflatten_dict(dict(arrays), sep="/")
    return ml_collections.ConfigDict(json.loads(workdir.config.read_text())), params


def load_pretrained(path: str) -> tuple[ml_collections.ConfigDict, Params]:
    """Reads what `load_params` does of the run that has exported the file `config.pretrained`; `UsageError` if none."""
    workdir = Workdir(Path(path).parent)
    try:
        if Path(path).name != workdir.params.name:
            raise FileNotFoundError(f"{path} has another name")
        return load_params(workdir.path)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        allowed = f"the {workdir.params.name} of a run with config.export_params ({first_line(error)})"
        raise UsageError(f"config.pretrained={path!r} is not allowed: it must be {allowed}") from error


def gather(params: Params) -> dict[str, np.ndarray]:
    """The parameters by name, whole on every process: all take part, whatever lies where."""
    # One at a time, so that no device ever holds more than one of them whole.
    return {
        keystr(path, simple=True, separator="/"): np.asarray(
            multihost_utils.process_allgather(leaf, tiled=True), np.float32
        )
        for path, leaf in tree_leaves_with_path(params)
    }
