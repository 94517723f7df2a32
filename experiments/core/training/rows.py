"""The rows of a run: what is collected between two, what each contains, and the line of progress made of it.

The findings of `Experiment.probe`, boolean arrays [S, ...] by name on the host, are kept from row to row, in
checkpoints too.
"""

import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from experiments.core.console import pace
from experiments.core.record import hardware, metrics
from experiments.core.record.metrics import Row, flatten
from experiments.core.training import optimizer
from experiments.core.training.experiment import Params, Setup
from experiments.core.training.plan import Plan
from experiments.core.training.program import Program
from experiments.core.training.step import TrainState

_PATIENCE = 30.0  # seconds without a line
Metrics = Any  # arrays [S, K] by name, possibly nested: seeds, steps
Found = dict[str, np.ndarray]  # bool [S, ...]


class Prober:
    """Applies the probe of an experiment, if it has one."""

    def __init__(self, setup: Setup):
        self._find: Any = None
        if probe := setup.experiment.probe:
            self._find = jax.jit(setup.over_seeds(probe.find, (0, None)), out_shardings=setup.everywhere)
            self._compare = jax.jit(jax.vmap(probe.compare), out_shardings=setup.everywhere)
        self._seed_axis = setup.seed_axis

    def __call__(self, params: Params, progress: float) -> Found:
        """Returns what is found in a network; nothing without a probe."""
        if self._find is None:
            return {}
        found = jax.device_get(self._find(params, np.float32(progress)))
        return found if self._seed_axis else {name: array[None] for name, array in found.items()}

    def compare(self, before: Found, now: Found) -> Any:
        """Metrics [S] of two findings; NaN where there are none before."""
        if not now:
            return {}
        metrics = jax.device_get(self._compare(before or now, now))
        return metrics if before else jax.tree.map(lambda values: np.full_like(values, np.nan), metrics)


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


def measure(
    program: Program, prober: Prober, step: int, state: TrainState, since_row: MetricsSinceRow, before: Sequence[Row]
) -> tuple[Row, Found]:
    """The row after `step` steps and the rows `before`, as in `record/metrics.py`, and what the probe finds."""
    setup, plan = program.setup, program.setup.plan
    progress = step / plan.total_steps
    found = prober(state.params, progress)
    evaluated = program.evaluate(state.params, progress)
    measured = {f"train_{name}": values for name, values in since_row.means().items()}
    measured |= {f"{setup.data.prefix}_error" if name == "error" else name: each for name, each in evaluated.items()}
    measured |= prober.compare(since_row.found, found)
    if setup.experiment.at_end and step == plan.total_steps:
        numbers = range(len(setup.config.seeds)) if setup.seed_axis else [...]
        of_seeds = [jax.tree.map(operator.itemgetter(number), state.params) for number in numbers]
        measured |= jax.tree.map(lambda *values: np.stack(values), *map(setup.experiment.at_end, of_seeds))
    diverged = np.atleast_1d(np.asarray(state.diverged))
    row = {
        "epoch": plan.epochs(step),
        "step": step,
        "seconds": round(since_row.seconds + (before[-1]["seconds"] if before else 0.0), 4),
        "diverged": diverged.tolist(),
    } | metrics.per_seed(jax.tree.map(np.atleast_1d, measured), diverged)
    if plan.unit == "step":  # runs in epochs, of small networks, say nothing of their speed
        rate = optimizer.learning_rate(setup.config, step - 1, plan.total_steps) if step else None
        row |= {"learning_rate": rate, "performance": performance(setup, since_row)}
    return row, found


def performance(setup: Setup, since_row: MetricsSinceRow) -> dict[str, Any]:
    """Turns the times since the last row into what a row says; None for what was not measured.

    step_seconds: median over the calls.
    images_per_second: over all calls, all seeds together.
    mfu: model FLOPs utilisation at the median step time, against dense bfloat16, where both are known.
    peak_memory_bytes: on the device, of this process, that has most.
    """
    images = setup.config.batch_size * len(setup.config.seeds)
    flops, peak = setup.experiment.flops_per_example, hardware.peak_flops(setup.mesh.devices.flat[0])
    times = since_row.step_seconds
    step_seconds = float(np.median(times)) if times else None
    rate = images / float(np.mean(times)) if times else None
    mfu = flops * images / step_seconds / (peak * setup.mesh.size) if step_seconds and flops and peak else None
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
