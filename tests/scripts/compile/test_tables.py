"""The page of results: what a step needs, how it scales, what an operator moves, and what is not known yet."""

import json

from scripts.aot import hardware, operator_tables, operators, step_tables, tables
from scripts.aot.operators import GRADIENT, ROWS, VALUE, Case


def step(name, type_, least, sent=10e6, bound="compute"):
    roofline = dict.fromkeys(("compute_seconds", "memory_seconds", "interconnect_seconds", "least_seconds"), least)
    train = {"fits": True, "operations_in_bfloat16": 1e12 * least, "bytes": 100.0, "sent_bytes": sent}
    train |= {"memory": {"peak": 1e9, "available": 16e9}, "roofline": roofline | {"bound": bound}}
    slice_ = hardware.parse(type_)
    return {
        "name": name,
        "type": type_,
        "mesh": {"data": slice_.count},
        "train": train,
        "rates": {"device": slice_.device.name},
        "devices": slice_.count,
        "code": "the same",
        "git": {"commit": "0123456789", "dirty": False},
        "rounds": 9.0,
    }


def test_how_a_step_scales_and_what_stops_it():
    found = [step("a", "v5litepod-64", 0.01, bound="interconnect"), step("a", "v5litepod-8", 0.04)]
    others = [step("b", "v5litepod-8", 1.0), step("a", "2xv5litepod-4", 0.08)]  # slices are slower between them
    rows = [line for line in step_tables.scaling([*found, *others]) if line.startswith("| a")]
    assert rows == [
        "| a | TPU v5e | 8 | 40.00 | 100 % | compute | 10.0 |",
        "| a | TPU v5e | 64 | 10.00 | 50 % | interconnect | 10.0 |",
    ]


def test_what_helps_a_step_that_does_not_fit():
    large = step("a", "v5litepod-8", 1.0)
    large["train"] |= {"fits": False, "change": ["--config.accumulate=2, which", "a type with more devices"]}
    found = list(step_tables.what_helps([large, step("b", "v5litepod-8", 1.0)]))
    assert found[-1] == "- a, v5litepod-8: --config.accumulate=2, which; a type with more devices"
    assert len([line for line in found if line.startswith("- ")]) == 1
    assert list(step_tables.what_helps([step("b", "v5litepod-8", 1.0)])) == []


def test_what_slices_send_each_other_is_beside_the_times():
    one, two = step("a", "v5litepod-8", 1.0), step("a", "2xv5litepod-4", 1.0)
    two["train"]["sent_between_slices_bytes"] = 41.26e6
    assert list(step_tables.to_other_slices([one, two]))[-1] == "- a, 2xv5litepod-4: 41.3 MB"
    assert list(step_tables.to_other_slices([one])) == []


def test_the_share_of_the_relaxed_router():
    pair = [step("vmoe S/32 relaxed", "v5litepod-16", 0.02), step("vmoe S/32 hard", "v5litepod-16", 0.016)]
    (share,) = [line for line in step_tables.shares(pair) if "relaxed |" in line]
    assert share == "| vmoe S/32 relaxed | v5litepod-16 | 1.2500 | 1.0000 | 1.0000 | 1.2500 |"
    assert list(step_tables.shares(pair[:1])) == []
    pair[1]["code"] = "another"  # whose changes would pass for the router's
    (share,) = [line for line in step_tables.shares(pair) if "relaxed |" in line]
    assert share == "| vmoe S/32 relaxed | v5litepod-16 | - | - | - | - |"


def test_the_code_of_a_step_is_its_commit_and_changes():
    clean, dirty = step("a", "v5litepod-16", 0.02), step("b", "v5litepod-16", 0.02)
    dirty["git"] = {"commit": "0123456789", "dirty": True}
    rows = list(step_tables.steps_table([clean, dirty]))[2:]
    assert rows[0].endswith("| `0123456` |")
    assert rows[1].endswith("| `0123456` and changes |")


def row(mode, dtype="float32", divided="", **changed):
    case = Case("topk_mask", operators.SIZES[0], dtype, mode, divided)
    counts = {"kernels_outside_loops": 4, "main_memory_passes_outside_loops": 3.0, "temporary_over_data": 0.1}
    counts |= {"sorts": 0, "gathers": 0, "host_round_trips_outside_loops": 0, "compile_seconds": 2.0, "loops": []}
    named = {"operator": case.operator, "rows": case.size.rows, "n": case.size.n, "compiles": True}
    return case.key, named | {"dtype": dtype, "mode": mode, "divided": divided} | counts | changed


def test_what_an_operator_moves_and_what_fails():
    loop = {"rounds": None, "kernels": 3, "passes": 1.0, "main_memory_passes": 2.0, "host": 1}
    cases = dict(
        [row(VALUE), row(GRADIENT, loops=[loop]), row(GRADIENT, divided=ROWS, compiles=False, error="too large")]
    )
    git = {"commit": "0123456789", "dirty": False}
    document = {"cases": cases, "rates": {"device": "H200"}, "compilers": {"jax": "1"}, "git": git}
    page = list(operator_tables.operators_table(document))
    assert page[0] == "### H200: 2 of 3 programs compile (jax 1; code `0123456`)"
    changed = document | {"git": git | {"dirty": True}}
    assert next(operator_tables.operators_table(changed)).endswith("(jax 1; code `0123456` and changes)")
    assert "| `topk_mask` | (12800, 400) | 4 | - | 1.50 | - | 2.0 |" in page
    assert "| `topk_mask` | (12800, 400) | 4 | 3 | 1.00 | 0.10 | 0 | 0 | 1 | 2.0 |" in page
    (failure,) = [line for line in page if "**fails**" in line]
    assert failure.endswith("float32, (12800, 400), rows divided over 8 devices: too large")


def test_what_a_mask_needs_on_each_chip():
    loop = {"rounds": None, "kernels": 3, "passes": 1.0, "main_memory_passes": 2.0, "host": 1}
    one, two, other = dict([row(VALUE)]), dict([row(VALUE, loops=[loop])]), dict([row(GRADIENT)])
    documents = [
        {"cases": cases, "rates": {"device": device}}
        for device, cases in (("A", one), ("B", two), ("C", other), ("D", {}))
    ]
    heads, _, *rows = operator_tables.mask_table(documents)
    assert heads.startswith("| chip | (12800, 400) | (128, 1000) |")
    assert rows == [
        "| A | 4; 1.50 | - | - | - | - | - |",
        "| B | 4 + 3 a round; 1.50 + 1.00 a round | - | - | - | - | - |",
    ]
    assert list(operator_tables.mask_table(documents[2:])) == []


def test_what_is_not_compiled_is_named(tmp_path):
    known = step("vmoe S/32 token choice", "v6e-16", 1.0)
    (tmp_path / "tpu-v6e.json").write_text(json.dumps({"steps": {"one": known}}))
    cases = dict([row(VALUE), row(GRADIENT)])
    git = {"commit": "0123456789", "dirty": False}
    document = {"cases": cases, "rates": {"device": "TPU v5e"}, "compilers": {"jax": "1"}, "git": git}
    (tmp_path / "tpu-v5e.json").write_text(json.dumps({"operators": document}))
    page = tables.write(tmp_path).read_text()
    assert "- vmoe S/32 token choice: v5litepod-16, h200-8\n" in page
    everything = list(operators.every(list(operators.CALLS), operators.SIZES))
    on_one = [case for case in everything if case.mode == GRADIENT and not case.divided and case.dtype == "float32"]
    some = [case for case in on_one if case.size.n in (1000, 1_000_000)]
    alone = 4 * len(operators.SIZES)  # values of the masks, one of which is there
    first = alone + len(on_one) + 2 * len(some)  # in bfloat16, and as many over eight chips
    assert f"- operators for TPU v5e: {first - 2} of {first} programs\n" in page
    assert f"- operators for TPU7x: {len(some)} of {len(some)} programs\n" in page
    assert f": 2 of {5 * len(everything)} programs are compiled.\n" in page
