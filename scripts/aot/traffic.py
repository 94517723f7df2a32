"""Bytes that an instruction of a compiled program moves from and to the memory of its device.

A kernel reads its operands and writes its results, once each. Less where it takes a slice of an operand or writes one
into it. What a cache holds, and what a kernel reads twice, is not known. `Spaces` says which memories count: the main
one alone, or those on the chip as well, where TPU's compiler may keep an array from one kernel to the next.
"""

import math
from collections.abc import Callable

from scripts.aot.hlo import Computation, Instruction, Module, Shape

# What makes no kernel: names, structure, the ends of what runs beside other kernels.
NOTHING = frozenset(
    (
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"),
        *("while", "conditional", "call", "opt-barrier", "add-dependency", "domain", "get-dimension-size"),
        *("copy-done", "all-reduce-done", "all-gather-done", "collective-permute-done", "async-done", "async-update"),
        *("slice-done", "dynamic-slice-done", "send-done", "recv-done"),
    )
)
Spaces = Callable[[Shape], bool]
# Copies that go on beside kernels, by hardware of their own.
TRANSFERS = frozenset(("copy-start", "slice-start", "dynamic-slice-start", "async-start"))
_SLICES = ("dynamic-slice", "slice", "gather")


def in_main_memory(shape: Shape) -> bool:
    """Whether an array lies there."""
    return shape.space == 0


def anywhere(shape: Shape) -> bool:
    """There or on the chip."""
    return shape.space <= 1  # others hold counters and flags


def is_kernel(instruction: Instruction) -> bool:
    """Whether it is run as a kernel."""
    return instruction.opcode not in NOTHING and instruction.opcode not in TRANSFERS


def is_scalar(instruction: Instruction, computation: Computation) -> bool:
    """Whether it makes single numbers of single numbers."""
    operands = [shape for name in instruction.operands for shape in _operand(computation, name)]
    return all(math.prod(shape.dims) == 1 for shape in (*instruction.shapes, *operands))


def moved(instruction: Instruction, computation: Computation, module: Module, spaces: Spaces = in_main_memory) -> float:
    """Bytes read and written."""

    def size(shapes: tuple[Shape, ...]) -> float:
        return sum(shape.bytes for shape in shapes if spaces(shape))

    if instruction.opcode in NOTHING or instruction.opcode == "async-start":
        return 0.0
    operands = [_operand(computation, name) for name in instruction.operands]
    if instruction.opcode in _SLICES:
        return 2 * size(instruction.shapes) + sum(size(shapes) for shapes in operands[1:])
    if instruction.opcode == "dynamic-update-slice":
        return 2 * size(operands[1])
    if instruction.opcode == "scatter":
        return size(operands[1]) + 3 * size(operands[2])
    if instruction.opcode in ("slice-start", "dynamic-slice-start"):
        made = instruction.shapes[len(operands[0]) :]
        return size(made) + sum(shape.bytes for shape in made[:1] if all(map(spaces, operands[0])))
    if instruction.opcode.endswith("-start"):
        # Results and operands are both in the tuple that it makes.
        return size(instruction.shapes)
    body = module.computations.get(instruction.called("calls") or "") if instruction.opcode == "fusion" else None
    if body is None:
        return size(instruction.shapes) + sum(map(size, operands))
    read = sum(_read(body, number, size(shapes)) for number, shapes in enumerate(operands))
    return read + _written(body, instruction.shapes, spaces)


def _operand(computation: Computation, name: str) -> tuple[Shape, ...]:
    found = computation.by_name.get(name)
    return found.shapes if found else ()


def _read(body: Computation, number: int, whole: float) -> float:
    """Of an operand of a fusion: the slices alone, if nothing else is looked at; nothing, if it is written into."""
    parameter = body.parameters.get(number)
    if parameter is None or not whole:
        return whole
    read = 0.0
    for user in _users(body, parameter.name):
        first = user.operands[0] if user.operands else None
        if user.opcode in _SLICES and _is_behind(body, first, parameter.name):
            read += sum(shape.bytes for shape in user.shapes)
        elif user.opcode == "dynamic-update-slice" and _is_behind(body, first, parameter.name):
            continue
        else:
            return whole
    return min(read, whole)


def _users(body: Computation, name: str) -> list[Instruction]:
    """Who looks at an array, under whatever name."""
    found = []
    for user in body.users.get(name, []):
        found += _users(body, user.name) if user.opcode == "bitcast" else [user]
    return found


def _is_behind(body: Computation, name: str | None, wanted: str) -> bool:
    while name is not None and name != wanted:
        instruction = body.by_name.get(name)
        name = instruction.operands[0] if instruction and instruction.opcode == "bitcast" else None
    return name == wanted


def _written(body: Computation, shapes: tuple[Shape, ...], spaces: Spaces) -> float:
    """By a fusion: the slices alone that are written into an operand."""
    roots = [body.root]
    if body.root.opcode == "tuple":
        roots = [body.by_name[name] for name in body.root.operands if name in body.by_name]
    if len(roots) != len(shapes):
        return sum(shape.bytes for shape in shapes if spaces(shape))
    written = 0.0
    for root, shape in zip(roots, shapes, strict=True):
        while root.opcode == "bitcast" and root.operands[0] in body.by_name:
            root = body.by_name[root.operands[0]]
        if spaces(shape):
            update = root.operands[1] if root.opcode == "dynamic-update-slice" else None
            written += sum(part.bytes for part in _operand(body, update)) if update else shape.bytes
    return written
