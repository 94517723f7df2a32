"""The rows of a run: what each says of training, evaluation and speed, and the line that whoever watches sees of it."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.core.pace import pace
from experiments.core.record import hardware, metrics
from experiments.core.record.metrics import Row, flatten
from experiments.core.training import optimizer
from experiments.core.training.experiment import Batch, Experiment, Params
from experiments.core.training.plan import Plan
from experiments.core.training.program import Program
from experiments.core.training.setup import Setup
from experiments.core.training.since_row import MetricsSinceRow, Prober
from experiments.core.training.state import TrainState

_PATIENCE = 30.0  # seconds without a line


class Recorder:
    """Adds rows to the metrics file, as `record/metrics.py` describes them."""

    def __init__(self, program: Program, prober: Prober, writer: metrics.Writer, no_steps: Any):
        """Takes a program whose evaluation is compiled; `no_steps` are metrics of training over no steps, [S, 0]."""
        self._program, self._prober, self._writer, self._no_steps = program, prober, writer, no_steps
        # Runs in epochs, of small networks, say nothing of their speed.
        by_steps = program.setup.plan.unit == "step"
        self._performance = Performance(program.setup, *program.first_batch()) if by_steps else None

    def add(self, step: int, state: TrainState, since_row: MetricsSinceRow) -> MetricsSinceRow:
        """Adds the row after `step` steps, and returns what collects metrics for the next one."""
        setup, plan, rows = self._program.setup, self._program.setup.plan, self._writer.rows
        progress = step / plan.total_steps
        found = self._prober(state.params, progress)
        evaluated = self._program.evaluate(state.params, progress)
        measured = {f"train_{name}": values for name, values in since_row.means().items()}
        measured |= {
            f"{setup.data.prefix}_error" if name == "error" else name: each for name, each in evaluated.items()
        }
        measured |= self._prober.compare(since_row.found, found)
        diverged = np.atleast_1d(np.asarray(state.diverged))
        row = {
            "epoch": plan.epochs(step),
            "step": step,
            "seconds": round(since_row.seconds + (rows[-1]["seconds"] if rows else 0.0), 4),
            "diverged": diverged.tolist(),
        } | metrics.per_seed(jax.tree.map(np.atleast_1d, measured), diverged)
        if self._performance:
            rate = optimizer.learning_rate(setup.config, step - 1, plan.total_steps) if step else None
            row |= {"learning_rate": rate, "performance": self._performance.row(since_row)}
        self._writer.append(row)
        return MetricsSinceRow(self._no_steps, found=found)


def count_flops(experiment: Experiment, params: Params, batch: Batch) -> float | None:
    """Operations per example in the gradient of the loss, as traced: loops count as one round.

    `params` and `batch` are arrays of one seed, or their shapes. Counted before compilation, where
    every matrix product is still one; what is compiled may hide them in calls of libraries.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    progress = jax.ShapeDtypeStruct((), jnp.float32)
    lowered = jax.jit(jax.grad(experiment.loss, has_aux=True)).lower(params, batch, key, progress)
    flops = (lowered.cost_analysis() or {}).get("flops")
    return flops / jax.tree.leaves(batch)[0].shape[0] if flops else None


class Performance:
    """Turns the times since the last row into what a row says.

    Attributes:
      images_per_step: images of all seeds.
      flops_per_step: operations; None where they are not known.
      peak_flops: a second, of all devices together; None where the chip is not a known one.
    """

    def __init__(self, setup: Setup, params: Params, batch: Batch):
        """Counts, for `params` and `batch` of one seed, or their shapes."""
        self.images_per_step = jax.tree.leaves(batch)[0].shape[0] * len(setup.config.seeds)
        device = setup.mesh.devices.flat[0]
        peak = hardware.peak_flops(device)
        flops = setup.experiment.flops_per_example
        if flops is None and peak is not None:
            flops = count_flops(setup.experiment, params, batch)
        self.flops_per_step = flops and flops * self.images_per_step
        self.peak_flops = peak and peak * setup.mesh.size

    def row(self, since_row: MetricsSinceRow) -> dict[str, Any]:
        """`null` stands for what was not measured, or what the hardware does not tell.

        step_seconds: median over the calls.
        images_per_second: over all calls, all seeds together.
        mfu: model FLOPs utilisation at the median step time, against dense bfloat16; null where
          environment.json has no `peak_flops` of the devices.
        peak_memory_bytes: on the device, of this process, that has most.
        """
        times = since_row.step_seconds
        step_seconds = float(np.median(times)) if times else None
        rate = self.images_per_step / float(np.mean(times)) if times else None
        mfu = None
        if step_seconds and self.flops_per_step and self.peak_flops:
            mfu = self.flops_per_step / step_seconds / self.peak_flops
        rounded = {"step_seconds": step_seconds, "images_per_second": rate, "mfu": mfu}
        return {name: None if value is None else float(f"{value:.4g}") for name, value in rounded.items()} | {
            "peak_memory_bytes": hardware.memory_in_use()
        }


class Progress:
    """Prints a line for every row, and others where rows are far between.

    It has epoch or step, headline metrics (mean over seeds), seeds lost, rate and time left.
    """

    def __init__(self, headline: tuple[str, ...], plan: Plan, first_step: int, say: Callable[[str], None]):
        self._headline, self._plan, self._say = headline, plan, say
        self._total, self._first = plan.count(plan.total_steps), plan.count(first_step)
        self._start = self._last = time.monotonic()

    def show(self, row: Row) -> None:
        """Prints the line of a row; time left counts everything: training, evaluation, saving."""
        parts, values_of = [], dict(flatten(row))
        for name in ("train_loss", *self._headline):
            values = [value for value in values_of[name] if value is not None]
            parts.append(f"{name} {np.mean(values):.4g}" if values else f"{name} -")
        if lost := sum(row["diverged"]):
            parts.append(f"{lost} of {len(row['diverged'])} seeds diverged")
        self._print(row["step"], parts)

    def warm(self, step: int) -> None:
        """Takes the first call, up to `step`, out of the count: there is much in it that no other has to do.

        Where it took long, that is little beside the rest, and better counted than not known.
        """
        if time.monotonic() - self._start < _PATIENCE:
            self._start, self._first = time.monotonic(), self._plan.count(step)

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
