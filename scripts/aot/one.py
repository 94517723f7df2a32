"""One run on one slice: its train step and evaluation compiled, said and recorded."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_collections

from experiments.core.config import to_json
from experiments.core.errors import UsageError
from experiments.core.training.experiment import Recipe
from scripts import sections
from scripts.aot import compiler, record, runs, steps
from scripts.aot.compiled import Refused
from scripts.aot.hardware import Slice

_CODE = ("ops", "experiments")
_PARTS = {"train": "train step", "evaluation": "evaluation"}
_Say = Callable[[str], None]


def name_of(experiment: str, config: str | None, overrides: Sequence[str]) -> str:
    """Of a record."""
    variant = (config or "").partition(":")[2]
    return " ".join([experiment, variant, *(flag.removeprefix("--config.") for flag in overrides)])


def go(
    recipe: Recipe,
    config: ml_collections.ConfigDict,
    slice_: Slice,
    path: Path,
    name: str,
    command: Sequence[str],
    say: _Say,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """The record, which `path` then holds among its steps.

    Raises:
      UsageError: the config cannot be run on the slice, or the compiler refuses it for another reason than memory.
    """
    code = record.digest(*_CODE)
    place = ("steps", f"{record.slug(name)}-{slice_.type}")
    earlier = sections.read(path, *place)
    if earlier and (
        options.anew
        or not record.is_by(earlier, slice_)
        or (earlier["config"], earlier["rounds"]) != (to_json(config), options.rounds)
    ):
        earlier = None
    known = earlier if record.is_of(earlier, slice_, code) else None
    with_evaluation = not options.no_evaluation and (known is None or known["train"]["fits"])
    if known and ("evaluation" in known or not with_evaluation):
        say(f"{path} has it already, of this code and these versions; --anew compiles again")
        show(known, say)
        return known
    program = runs.program_of(recipe, config, slice_, compiler.devices(slice_))
    shape = ", ".join(f"{axis}={size}" for axis, size in program.mesh.shape.items() if size > 1)
    document = known or record.header(slice_, command, code) | {
        "name": name,
        "experiment": recipe.name,
        "config": to_json(config),
        "mesh": dict(program.mesh.shape),
        "batch_size": config.batch_size,
        "rounds": options.rounds,
    }
    where = f"{slice_.type}, {slice_.count} devices ({shape})"
    try:
        for part in _PARTS:
            if part in document or (part == "evaluation" and (options.no_evaluation or not document["train"]["fits"])):
                continue
            say(f"{name}: the {_PARTS[part]} for {where}: some minutes")
            start = time.perf_counter()
            before = (earlier or {}).get(part)
            kept = options.keep_text / f"{place[1]}-{part}.txt" if options.keep_text else None
            document[part] = steps.compile_(part, program, slice_, options.rounds, say, before, kept)
            if part == "train":
                document[part] |= steps.rates(program, slice_, document[part])
            say(f"the {_PARTS[part]} took {time.perf_counter() - start:.0f} s")
            sections.write(path, document, *place)
    except Refused as error:
        raise UsageError(f"the compiler refuses {name} for {slice_.type}: {error}") from error
    show(document, say)
    say(f"the record is {path}")
    return document


def show(document: dict[str, Any], say: _Say) -> None:
    """A few lines for people."""
    for part in ("train", "evaluation"):
        found = document.get(part)
        if not found:
            continue
        if not found["fits"]:
            say(f"{part}: DOES NOT FIT on {document['type']}; what helps: " + "; ".join(found["change"]))
            continue
        memory, least = found["memory"], found["roofline"]
        say(
            f"{part}: fits on {document['type']}, {memory['peak'] / 1e9:.2f} of {memory['available'] / 1e9:.1f} GB a "
            f"device ({memory['arguments'] / 1e9:.2f} of arguments, {memory['temporary'] / 1e9:.2f} temporary)"
        )
        say(
            f"  computed, not measured: at least {1e3 * least['least_seconds']:.2f} ms, bound by {least['bound']} "
            f"(compute {1e3 * least['compute_seconds']:.2f}, memory {1e3 * least['memory_seconds']:.2f}, "
            f"interconnect {1e3 * least['interconnect_seconds']:.2f})"
        )
        for one in found["collectives"]:
            say(f"  {one['count']} {one['kind']} among {one['group']}: {one['sent'] / 1e6:.1f} MB sent by a device")
        if between := found.get("sent_between_slices_bytes"):  # for which the makers publish no rate
            say(f"  {between / 1e6:.1f} MB sent by a device to other slices, not counted in the time")
