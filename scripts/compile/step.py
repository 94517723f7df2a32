"""The trainer's own train step and evaluation, for a config with its overrides, compiled for a slice."""

import importlib
import math
from collections.abc import Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from experiments.core import cli
from experiments.core import config as config_lib
from experiments.core.errors import UsageError
from experiments.core.input.outline import outline
from experiments.core.record.chips import Slice
from experiments.core.training import evaluation, train
from experiments.core.training import mesh as mesh_lib
from experiments.core.training.experiment import Recipe
from experiments.core.training.step import Program
from scripts.compile import compiled, compiler, operations


def run_of(experiment: str, path: str, overrides: Sequence[str], slice_: Slice) -> tuple[Recipe, ConfigDict]:
    """The recipe, and the config that `python -m experiments.NAME --config=PATH OVERRIDES` would train on a slice.

    It has the slice's mesh, and no weights to start from: these change the first values alone, and need not be here.

    Raises:
      UsageError: there is no such experiment or config, or it cannot be trained there.
    """
    name = f"experiments.{experiment}.experiment"
    try:
        recipe = importlib.import_module(name).RECIPE
    except (ModuleNotFoundError, AttributeError) as error:
        raise UsageError(f"{experiment!r} is not an experiment: {name} has no RECIPE") from error
    _, config = cli.parse(recipe, [f"--config={path}", "--workdir=none", *overrides])
    config = mesh_lib.of_devices(config, slice_.count, slice_.processes)
    if config.get("pretrained"):
        config = config.copy_and_resolve_references()
        config.pretrained = ""
    train.check_fields(recipe, config, slice_.count)
    return recipe, config


def program_of(recipe: Recipe, config: ConfigDict, devices: Sequence[Any]) -> Program:
    """Builds the program that the trainer would compile for a config, on the compiler's devices."""
    with config_lib.reading(recipe.name):
        return Program(recipe, config, outline(config), devices if "mesh" in config else devices[:1])


def compile_(program: Program, part: str, slice_: Slice) -> dict[str, Any]:
    """Compiles the `train` step of a run, or a call of its `evaluation`; all numbers are those of one device.

    Returns:
      The entries of `compiled.outcome`, `operations` of matrix products, `state` (bytes of parameters and what the
      optimizer keeps for them) and, where it does not fit, `change`: what helps.

    Raises:
      UsageError: the compiler refuses it for another reason than memory.
    """
    with jax.set_mesh(program.mesh):
        traced = program.trace() if part == "train" else evaluation.make(program).trace(program.state.params)
        lowered = traced.lower()
    try:
        result = compiled.outcome(lowered, slice_)
    except compiled.Refused as error:
        raise UsageError(f"the compiler refuses the {part} for {slice_.type}: {error}") from error
    leaves = jax.tree.leaves(program.state)
    state = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    result |= {"operations": operations.count(traced.jaxpr.jaxpr) / slice_.count, "state": state}
    return result if result["fits"] else result | {"change": changes(program.config, state, result["available"])}


def changes(config: ConfigDict, state_bytes: float, available: float) -> list[str]:
    """Lists changes to a config that does not fit, the cheapest first; bytes are those of a device."""
    suggestions = []
    sizes = mesh_lib.axis_sizes(config)
    state_is_most = state_bytes > 0.5 * available
    if "mesh" in config and sizes["data"] > 1:
        if config.get("moe") is not None and sizes["expert"] == 1:
            suggestions.append("--config.mesh.expert=N, which divides the experts among N devices")
        by_fsdp = "--config.mesh.fsdp=N, which divides parameters and optimizer among N devices"
        suggestions.insert(0 if state_is_most else len(suggestions), by_fsdp)
    model = config.get("model")
    if model is not None and model.get("remat") is False:
        suggestions.append("--config.model.remat=True, which computes activations again instead of keeping them")
    if "accumulate" in config:
        twice = 2 * (config.accumulate or 1)
        suggestions.append(f"--config.accumulate={twice}, which takes the batch in {twice} parts, one after the other")
    return [*suggestions, f"--config.batch_size below {config.batch_size}", "a type with more devices"]


def heading(program: Program, slice_: Slice) -> str:
    """Names the slice, mesh and compiler in a line."""
    mesh = ", ".join(f"{axis} {size}" for axis, size in program.mesh.shape.items())
    versions = ", ".join(f"{name} {version}" for name, version in compiler.versions(slice_.platform).items())
    steps = program.plan.steps_per_dispatch
    return f"for {slice_.type} (mesh {mesh}), a call of {steps} step(s), by {versions}: some minutes"


def lines(part: str, found: dict[str, Any], slice_: Slice) -> list[str]:
    """Formats the result of `compile_` for people."""
    memory = {"parameters and optimizer": found["state"], **found.get("memory", {})}
    at_peak = 1e3 * found["operations"] / slice_.chip.flops
    whose = "a device" if "memory" in found else "all devices together"
    needed, available = size_of(found["needed"]), size_of(found["available"])
    return [
        f"{part}: {'fits' if found['fits'] else 'DOES NOT FIT'}: a device needs {needed} of {available}",
        "  " + ", ".join(f"{name} {size_of(size)}" for name, size in memory.items()),
        f"  largest arrays of {whose}, without padding:",
        *(f"    {size_of(array['bytes'])}  {array['shape']}  {array['source']}".rstrip() for array in found["largest"]),
        f"  operations of matrix products on a device: {found['operations']:.4g}, which take {at_peak:.2f} ms at the "
        f"published rate of a {slice_.chip.name} (computed, not measured)",
        *(
            f"  {row['count']} {row['kind']} among {row['group']}: a device sends {size_of(row['sent'])}"
            f"{' or more, as a loop goes on until its data are done' if row['at_least'] else ''}"
            for row in found.get("collectives", ())
        ),
        *(f"  what helps: {change}" for change in found.get("change", ())),
    ]


def size_of(bytes_: float) -> str:
    """Formats bytes for people."""
    return f"{bytes_ / 1e9:.2f} GB" if bytes_ >= 1e9 else f"{bytes_ / 1e6:.2f} MB"
