"""A run, from its config to its last row: start reading here.

A run is a sequence of compiled calls, each of which takes some steps for all seeds (`Plan` says how many, `feed.py`
where batches come from). The next call is under way before the metrics of the last one are read. Everything random is a
function of the seed and the step, so a run that was killed ends with the numbers of one that was not.
"""

import os
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from experiments.core import config as config_lib
from experiments.core.config import require, require_wholes
from experiments.core.errors import UsageError, printable
from experiments.core.input import cache
from experiments.core.input import dataset as data_lib
from experiments.core.record.workdir import Workdir
from experiments.core.training import evaluation, experiment, feed, optimizer, recorder
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.checkpoint import Checkpoints
from experiments.core.training.evaluation import Evaluate
from experiments.core.training.experiment import Recipe
from experiments.core.training.guard import Stop, enough_memory, interruptible, is_first, require_same
from experiments.core.training.recorder import MetricsSinceRow, Recorder
from experiments.core.training.step import Program

# Options of JAX that decide which numbers follow from a seed: a run has the same ones whatever the variables say.
_RANDOM = {"jax_default_prng_impl": "threefry2x32", "jax_threefry_partitionable": True, "jax_random_seed_offset": 0}


def validate(config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks the fields that every experiment has, for `num_devices` devices; None: those that JAX sees."""
    config_lib.require_plain(config)
    data_lib.validate(config)
    experiment.validate_length(config)
    optimizer.validate(config)
    require(config.batch_size > 0, "batch_size", config.batch_size, "positive")
    fields, arguments = dict(config_lib.leaves(config.to_dict(), prefix="")), config.get("arguments", ())
    numbers = all(isinstance(fields.get(name), float) for name in arguments)
    require(numbers, "arguments", arguments, "a tuple of fields that are numbers with a point")
    differ = "a tuple of different integers in [0, 2**31)"
    require_wholes(lambda all_: 0 < len(all_) == len(set(all_)) and min(all_) >= 0, "seeds", config.seeds, differ)
    mesh_lib.validate(config, num_devices)
    evaluation.validate(config)
    recorder.validate(config)


def check_fields(recipe: Recipe, config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks all fields for `num_devices` devices, whatever their type (`UsageError`); None: as many as JAX sees.

    For another number than JAX sees, `config` must name all sizes of its mesh: see `mesh.of_devices`.
    """
    with config_lib.reading(recipe.name):
        try:
            validate(config, num_devices)
            recipe.validate(config)
        except TypeError as error:  # of a config file; on the command line fields keep their types
            raise UsageError(f"a field of the config is of another type than is computed with: {error}") from error


def prepare(recipe: Recipe, config: ml_collections.ConfigDict) -> None:
    """Checks that this machine has what a valid config needs, and fetches what can be (`Recipe.prepare`)."""
    with config_lib.reading(recipe.name):
        recipe.prepare(config)


def run(recipe: Recipe, config: ml_collections.ConfigDict, path: Any, command: Sequence[str] = ()) -> None:
    """Trains, or goes on training, what `recipe` makes of `config`, in the directory `path`.

    With several processes (`jax.distributed`), each calls this with the same arguments; the first one writes, and only
    checkpoints are written by all: `path` must be one directory for all of them. Returns when the run is done, or when
    SIGTERM, SIGINT or SIGHUP has stopped it after a checkpoint.

    Raises:
      UsageError: for a config that cannot be run, or not on this machine, a directory that holds another run, or
        processes that were given different arguments.
    """
    require_same([f"experiments.{recipe.name} --workdir={Workdir(path).path}", *config_lib.lines(config)])
    check_fields(recipe, config)
    workdir = Workdir(path)
    workdir.check(config)
    prepare(recipe, config)
    if not workdir.is_done():
        start(recipe, config, workdir, command)
    elif is_first():
        print(printable(f"{path} is done: see {workdir.summary.name}"), flush=True)


def start(recipe: Recipe, config: ml_collections.ConfigDict, workdir: Workdir, command: Sequence[str]) -> str | None:
    """Trains a checked, unfinished run on a prepared machine, to its end or until a signal, whose name it returns.

    The entry of suites, which check and prepare all runs first; that of a single run is `run`.
    """
    for option, value in _RANDOM.items():
        jax.config.update(option, value)
    use_compilation_cache()
    with config_lib.reading(recipe.name):
        data = recipe.load(config)
        require_same([f"the data {data.fingerprint}"])  # which each reads from its own disk
        program = Program(recipe, config, data)
        evaluate = evaluation.make(program)
    examines = program.experiment.examine is not None or not config.get("export_examples")
    require(examines, "export_examples", True, f"False for {recipe.name}, which has nothing to say of single examples")
    with closing(program.feed), closing(evaluate):
        program.feed.open()
        with (
            # Only now is anything written: a run that cannot start leaves no trace.
            interruptible() as stop,
            workdir.claim(config, data.fingerprint) if is_first() else nullcontext(),
            enough_memory(config),
            jax.set_mesh(program.mesh),
        ):
            train(program, evaluate, workdir, command, stop)
    return stop.received


def train(program: Program, evaluate: Evaluate, workdir: Workdir, command: Sequence[str], stop: Stop) -> None:
    """Trains from the newest checkpoint, or from the start, to the end, or until there is something to `stop` it."""
    config, data, plan = program.config, program.data.fingerprint, program.plan
    checkpoints = Checkpoints(workdir.checkpoints, config_lib.to_json(config), data)
    restored = checkpoints.restore(program.state)
    step, state, since_row = restored or (0, program.state, None)
    rows = recorder.rows_before(workdir, plan, config, step)
    # Up to here nothing on disk has changed.
    if is_first() and not workdir.record_launch(command, program.recipe.name, data)["git"]["commit"]:
        stop.say("no commit of the code is recorded: git finds none")
    for number, reason, place in checkpoints.clear():
        stop.say(f"the checkpoint of {plan.describe(number)} is damaged ({reason}): it is now {place}")
    seeds, examples = mesh_lib.put(program.seeds, program.everywhere), program.feed.examples
    if restored:
        stop.say(f"resuming after {plan.describe(step)}")
    else:
        state = program.begin(seeds)
    with closing(Recorder(program, evaluate, workdir, rows, step, stop.say)) as record:
        chunks = feed.chunks(program.feed, range(step, plan.total_steps, plan.steps_per_dispatch))
        step_of, no_metrics = _compile(program, evaluate, stop)
        since_row = since_row or MetricsSinceRow(no_metrics)
        if not rows:
            since_row = record.add(step, state, since_row)
        since_row.start()
        while step < plan.total_steps and not stop.asked(together=plan.is_row(step) or plan.is_checkpoint(step)):
            state, metrics = step_of(state, seeds, examples, next(chunks), np.int32(step), program.arguments)
            since_row.dispatched(metrics)
            step += plan.steps_per_dispatch
            if plan.is_row(step) or plan.is_checkpoint(step):
                since_row.finish()
                if plan.is_row(step):
                    since_row = record.add(step, state, since_row)
                if plan.is_checkpoint(step):
                    checkpoints.save(step, state, since_row)
                since_row.start()
            else:
                record.reached(step)
        since_row.finish()
        if step > 0:
            checkpoints.save(step, state, since_row)
        if step == plan.total_steps:
            record.finish(state.params)
        else:
            by = stop.received or "a signal to another process"
            stop.say(f"stopped by {by} after {plan.describe(step)}; the same command resumes")


def _compile(program: Program, evaluate: Evaluate, stop: Stop) -> tuple[Any, Any]:
    """The train step, and its metrics over no steps at all, [S, 0]; the evaluation is compiled, too."""
    start = time.perf_counter()
    stop.say("compiling the train step and the evaluation")
    lowered = program.trace().lower()
    no_metrics = jax.tree.map(lambda _: np.zeros((len(program.config.seeds), 0), np.float32), lowered.out_info[1])
    step_of = lowered.compile()
    evaluate.compile(program.state.params)
    optimizer.learning_rate(program.config, 0, program.plan.total_steps)  # which rows have; JAX keeps it compiled
    stop.say(f"compiled in {time.perf_counter() - start:.1f} s")
    return step_of, no_metrics


def use_compilation_cache() -> None:
    """Turns on JAX's compilation cache: a run that goes on, or another of the same network, reads compiled programs.

    In $JAX_COMPILATION_CACHE_DIR, which may be in a bucket, else in ~/.cache/sparse-topk/compiled, where all may be
    removed at any time. JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    directory = str(cache.directory() / "compiled")
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR") and directory != jax.config.values["jax_compilation_cache_dir"]:
        jax.config.update("jax_compilation_cache_dir", directory)
        compilation_cache.reset_cache()  # JAX has opened another for good, or none, if it has compiled before
        # To read a program takes some milliseconds: those that compile faster are not worth a file.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
