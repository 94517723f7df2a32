"""Train step and evaluation of a run on a slice: compiled, counted, and held against the devices' rates."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_collections

from experiments.core.training.program import Program
from scripts.aot import advice, compiled, operations, record, roofline
from scripts.aot.compiled import Compiled, TooLarge
from scripts.aot.contents import Part
from scripts.aot.hardware import Slice

_LARGEST = 6
_Say = Callable[[str], None]
_Record = dict[str, Any]


def compile_(
    part: str,
    program: Program,
    slice_: Slice,
    assumed: float,
    say: _Say,
    earlier: _Record | None = None,
    keep: Path | None = None,
) -> _Record:
    """The record of the `train` step of a run, or of a call of its `evaluation`.

    Args:
      part: which of the two.
      program: of the run.
      slice_: to compile for.
      assumed: rounds of loops whose number the data decide.
      say: takes lines for people.
      earlier: a record, which is returned if it is of the same program.
      keep: where to keep the compiled program, as XLA prints it.
    """
    trace = {"train": program.trace_train, "evaluation": program.trace_evaluation}[part]
    device = slice_.device
    held = state_bytes(program)
    start = time.perf_counter()
    with jax.set_mesh(program.mesh):
        traced = trace()
        counted = operations.count(traced.jaxpr.jaxpr, device.platform, assumed)
        lowered = traced.lower()
    digest = record.program(lowered)
    if earlier and earlier.get("program") == digest:
        say("the program is the one that was compiled before")
        return earlier
    say(f"traced in {time.perf_counter() - start:.0f} s, compiling")
    try:
        done = compiled.compile_(lowered, device.platform, keep)
    except TooLarge as error:
        # Where the compiler has stopped before it had placed any: as traced, of all devices together.
        largest = error.largest or operations.largest(traced.jaxpr.jaxpr, _LARGEST)
        for line in advice.lines(program.config, slice_, held, error.needed, error.available, largest):
            say(line)
        return {
            "program": digest,
            "fits": False,
            "needed_bytes": error.needed,
            "available_bytes": error.available,
            "state_bytes": held,
            "largest": _buffers(largest),
            "largest_of_all_devices_together": not error.largest,
            "change": advice.changes(program.config, held, error.available),
        }
    return {"program": digest} | described(program.config, slice_, done, counted, held, assumed, say)


def rates(program: Program, slice_: Slice, found: _Record) -> _Record:
    """What follows for the rates of training from the record of the train step; nothing where that does not fit."""
    if "roofline" not in found or not program.experiment.flops_per_example:
        return {}
    steps = program.plan.steps_per_dispatch
    batch = program.config.batch_size * len(program.config.seeds) * steps
    needed, least = program.experiment.flops_per_example * batch / slice_.count, found["roofline"]["least_seconds"]
    return {
        "model_operations": needed,
        "mfu_at_most": needed / (least * slice_.device.flops),
        "images_a_second_at_most": batch / least,
    }


def state_bytes(program: Program) -> float:
    """Of parameters and what the optimizer keeps for them, on a device."""
    leaves = jax.tree.leaves(program.state)
    return float(sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves))


def described(
    config: ml_collections.ConfigDict,
    slice_: Slice,
    done: Compiled,
    counted: operations.Operations,
    held: float,
    assumed: float,
    say: _Say,
) -> _Record:
    """The record of a program that the compiler has taken."""
    device, inside = slice_.device, done.contents
    fits = done.memory.peak <= device.memory
    bound = roofline.of(device, counted.weighted / slice_.count, inside.total("bytes", assumed), inside.sent(assumed))
    found = {
        "fits": fits,
        "compile_seconds": round(done.seconds, 1),
        "state_bytes": held,
        "memory": {
            "arguments": done.memory.arguments,
            "results": done.memory.results,
            "temporary": done.memory.temporary,
            "code": done.memory.code,
            "peak": done.memory.peak,
            "available": device.memory,
        },
        "largest": _buffers(inside.largest),
        "operations": counted.products / slice_.count,
        "operations_in_bfloat16": counted.weighted / slice_.count,
        "operations_by_the_compiler_loops_once": done.flops,
        "assumed_rounds": assumed if inside.unknown else None,
        "loops": [_loop(part) for part in inside.loops],
        "kernels": inside.total("kernels", assumed),
        "kernels_outside_loops": inside.outside.kernels,
        "sorts": inside.total("sorts", assumed),
        "gathers": inside.total("gathers", assumed),
        "host_round_trips": inside.total("host", assumed),
        "bytes": inside.total("bytes", assumed),
        "sent_bytes": inside.sent(assumed),
        "sent_between_slices_bytes": inside.total("between_slices", assumed),
        "collectives": inside.collectives(assumed),
        "roofline": bound.record(),
    }
    if not fits:
        for line in advice.lines(config, slice_, held, done.memory.peak, device.memory, inside.largest):
            say(line)
        found["change"] = advice.changes(config, held, device.memory)
    return found


def _loop(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "rounds": part.rounds,
        "inside": len(part.parents),
        "kernels": part.kernels,
        "bytes": part.bytes,
        "sorts": part.sorts,
        "gathers": part.gathers,
        "host": part.host,
    }


def _buffers(buffers: Any) -> list[dict[str, Any]]:
    return [{"shape": one.shape, "bytes": one.bytes, "source": one.source} for one in buffers]
