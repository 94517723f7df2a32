"""How a run starts: its config is checked, its directory claimed, its data opened; then `loop.py` trains."""

import os
from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import Any

import jax
import ml_collections
from jax.experimental.compilation_cache import compilation_cache

from experiments.core import config as config_lib
from experiments.core.config import require, require_wholes
from experiments.core.errors import UsageError, printable
from experiments.core.input import cache
from experiments.core.input import dataset as data_lib
from experiments.core.record.workdir import Workdir
from experiments.core.training import evaluation, export, optimizer, plan, processes
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Recipe, Setup
from experiments.core.training.loop import Interrupt, Loop
from experiments.core.training.program import Program

# Options of JAX that decide which numbers follow from a seed: a run has the same ones whatever the variables say.
_RANDOM = {"jax_default_prng_impl": "threefry2x32", "jax_threefry_partitionable": True, "jax_random_seed_offset": 0}


def validate(config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks the fields that every experiment has, for `num_devices` devices; None: those that JAX sees."""
    config_lib.require_plain(config)
    data_lib.validate(config)
    plan.validate(config)
    optimizer.validate(config)
    require(config.batch_size > 0, "batch_size", config.batch_size, "positive")
    fields, arguments = dict(config_lib.leaves(config.to_dict(), prefix="")), config.get("arguments", ())
    numbers = all(isinstance(fields.get(name), float) for name in arguments)
    require(numbers, "arguments", arguments, "a tuple of fields that are numbers with a point")
    differ = "a tuple of different integers in [0, 2**31)"
    require_wholes(lambda all_: 0 < len(all_) == len(set(all_)) and min(all_) >= 0, "seeds", config.seeds, differ)
    mesh_lib.validate(config, num_devices)
    evaluation.validate(config)
    export.validate(config)


def check_fields(recipe: Recipe, config: ml_collections.ConfigDict, num_devices: int | None = None) -> None:
    """Checks all fields for a number of devices of any kind (`UsageError`); None: as many as JAX sees.

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
    processes.require_same([f"experiments.{recipe.name} --workdir={Workdir(path).path}", *config_lib.lines(config)])
    check_fields(recipe, config)
    workdir = Workdir(path)
    workdir.check(config)
    prepare(recipe, config)
    if workdir.is_done():
        if processes.is_first():
            print(printable(f"{path} is done: see {workdir.summary.name}"), flush=True)
        return
    start(recipe, config, workdir, command)


def use_compilation_cache() -> None:
    """Makes JAX keep what it compiles from now on: a run that goes on, or another of the same network, reads it.

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


def start(recipe: Recipe, config: ml_collections.ConfigDict, workdir: Workdir, command: Sequence[str]) -> str | None:
    """Starts a validated, unfinished run on a machine that is prepared; returns what asked it to stop, as SIGTERM."""
    for option, value in _RANDOM.items():
        jax.config.update(option, value)
    use_compilation_cache()
    with config_lib.reading(recipe.name):
        data = recipe.load(config)
        processes.require_same([f"the data {data.fingerprint}"])  # which each reads from its own disk
        program = Program(Setup(recipe, config, data))
    examines = program.setup.experiment.examine is not None or not config.get("export_examples")
    require(examines, "export_examples", True, f"False for {recipe.name}, which has nothing to say of single examples")
    interrupt = Interrupt()
    with closing(program.feed), closing(program.evaluate):
        program.feed.open()
        with (
            # Only now is anything written: a run that cannot start leaves no trace.
            interrupt,
            workdir.claim(config, data.fingerprint) if processes.is_first() else nullcontext(),
            jax.set_mesh(program.setup.mesh),
        ):
            try:
                Loop(program, workdir, interrupt).go(command, recipe.name)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                parts = config.get("accumulate") or 1
                examples = f"{config.batch_size // parts} examples at once"
                allowed = f"more, such as {2 * parts}: a device lacks the memory for {examples}"
                raise UsageError(f"config.accumulate={parts} is not allowed: it must be {allowed}") from error
    return interrupt.received
