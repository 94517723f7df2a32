# ruff: noqa: E501  (the compiler prints long lines)
"""Programs compiled here, and lines as TPU's compiler prints them, are read for what they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scripts.aot import contents, hlo, traffic
from scripts.aot.hlo import Shape

# Of a program of TPU's compiler, shortened: a loop whose rounds are known, an array on the chip, slices of a stack.
TPU = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[12,64,128]{2,1,0})->f32[64,128]{1,0}}

%fused_computation.1 (param_0.1: f32[12,64,128], param_1.2: s32[]) -> f32[64,128] {
  %param_0.1 = f32[12,64,128]{2,1,0:T(8,128)} parameter(0)
  %param_1.2 = s32[]{:T(128)} parameter(1)
  %constant.3 = s32[]{:T(128)} constant(0)
  %dynamic-slice.4 = f32[1,64,128]{2,1,0:T(8,128)} dynamic-slice(%param_0.1, %param_1.2, %constant.3, %constant.3), dynamic_slice_sizes={1,64,128}
  ROOT %bitcast.5 = f32[64,128]{1,0:T(8,128)} bitcast(%dynamic-slice.4)
}

%fused_computation.2 (param_0.6: f32[12,64,128], param_1.7: f32[64,128], param_2.8: s32[]) -> f32[12,64,128] {
  %param_0.6 = f32[12,64,128]{2,1,0:T(8,128)} parameter(0)
  %param_1.7 = f32[64,128]{1,0:T(8,128)} parameter(1)
  %bitcast.9 = f32[1,64,128]{2,1,0:T(8,128)} bitcast(%param_1.7)
  %param_2.8 = s32[]{:T(128)} parameter(2)
  %constant.10 = s32[]{:T(128)} constant(0)
  ROOT %dynamic-update-slice.11 = f32[12,64,128]{2,1,0:T(8,128)} dynamic-update-slice(%param_0.6, %bitcast.9, %param_2.8, %constant.10, %constant.10)
}

%body (arg.12: (s32[], f32[12,64,128], f32[64,128])) -> (s32[], f32[12,64,128], f32[64,128]) {
  %arg.12 = (s32[]{:T(128)}, f32[12,64,128]{2,1,0:T(8,128)}, /*index=2*/f32[64,128]{1,0:T(8,128)S(1)}) parameter(0)
  %get-tuple-element.13 = s32[]{:T(128)} get-tuple-element(%arg.12), index=0
  %get-tuple-element.14 = f32[12,64,128]{2,1,0:T(8,128)} get-tuple-element(%arg.12), index=1
  %fusion.15 = f32[64,128]{1,0:T(8,128)S(1)} fusion(%get-tuple-element.14, %get-tuple-element.13), kind=kLoop, calls=%fused_computation.1, metadata={op_name="jit(f)/while/body/slice"}
  %fusion.16 = f32[12,64,128]{2,1,0:T(8,128)} fusion(%get-tuple-element.14, %fusion.15, %get-tuple-element.13), kind=kLoop, calls=%fused_computation.2
  ROOT %tuple.17 = (s32[]{:T(128)}, f32[12,64,128]{2,1,0:T(8,128)}, f32[64,128]{1,0:T(8,128)S(1)}) tuple(%get-tuple-element.13, %fusion.16, %fusion.15)
}

%cond (arg.18: (s32[], f32[12,64,128], f32[64,128])) -> pred[] {
  %arg.18 = (s32[]{:T(128)}, f32[12,64,128]{2,1,0:T(8,128)}, f32[64,128]{1,0:T(8,128)S(1)}) parameter(0)
  %get-tuple-element.19 = s32[]{:T(128)} get-tuple-element(%arg.18), index=0
  %constant.20 = s32[]{:T(128)} constant(12)
  ROOT %compare.21 = pred[]{:T(512)} compare(%get-tuple-element.19, %constant.20), direction=LT
}

ENTRY %main.22 (x.23: f32[12,64,128]) -> f32[64,128] {
  %x.23 = f32[12,64,128]{2,1,0:T(8,128)} parameter(0)
  %constant.24 = s32[]{:T(128)} constant(0)
  %copy-start.25 = (f32[12,64,128]{2,1,0:T(8,128)S(1)}, f32[12,64,128]{2,1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x.23)
  %copy-done.26 = f32[12,64,128]{2,1,0:T(8,128)S(1)} copy-done(%copy-start.25)
  %slice-start.31 = ((f32[12,64,128]{2,1,0:T(8,128)}), f32[3,64,128]{2,1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%x.23), slice={[0:3], [0:64], [0:128]}
  %slice-done.32 = f32[3,64,128]{2,1,0:T(8,128)S(1)} slice-done(%slice-start.31)
  %tuple.27 = (s32[]{:T(128)}, f32[12,64,128]{2,1,0:T(8,128)}, f32[64,128]{1,0:T(8,128)S(1)}) tuple(%constant.24, %x.23, %x.23)
  %while.28 = (s32[]{:T(128)}, f32[12,64,128]{2,1,0:T(8,128)}, f32[64,128]{1,0:T(8,128)S(1)}) while(%tuple.27), condition=%cond, body=%body, metadata={op_name="jit(f)/while"}, backend_config={"known_trip_count":{"n":"12"},"known_init_step":{"init":"0","step":"1"}}
  %get-tuple-element.29 = f32[64,128]{1,0:T(8,128)S(1)} get-tuple-element(%while.28), index=2
  ROOT %all-reduce.30 = f32[64,128]{1,0:T(8,128)} all-reduce(%get-tuple-element.29), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%cond, metadata={op_name="jit(f)/psum"}
}
"""
SLICE, STACK = 64 * 128 * 4, 12 * 64 * 128 * 4


def test_shapes_and_the_memory_they_lie_in():
    found = hlo.shapes("(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, pred[3]{0}, s4[10], f8e4m3fn[7], u32[]{:S(2)})")
    assert found[0] == Shape("bf16", (8, 128), 1)
    assert [shape.bytes for shape in found] == [2048, 3, 5, 7, 4]
    assert [shape.space for shape in found] == [1, 0, 0, 0, 2]
    assert str(found[0]) == "bf16[8,128]"


def test_a_stack_of_which_slices_are_read_and_written_counts_by_its_slices():
    module = hlo.parse(TPU)
    body = module.computations["body"]
    read, written = body.by_name["fusion.15"], body.by_name["fusion.16"]
    # A slice from the main memory, and an index; the result stays on the chip.
    assert traffic.moved(read, body, module) == SLICE + 4
    assert traffic.moved(read, body, module, traffic.anywhere) == 2 * SLICE + 4
    assert traffic.moved(written, body, module) == SLICE + 4
    assert traffic.moved(body.by_name["tuple.17"], body, module) == 0


def test_loops_count_as_often_as_they_go_round():
    found = contents.of(TPU, "tpu")
    (loop,) = found.loops
    # Two fusions; on TPUs the comparison of two numbers is no kernel.
    assert (loop.name, loop.rounds, loop.kernels, loop.bytes) == ("jit(f)/while", 12, 2, 2 * (SLICE + 4) + 5 + 4)
    assert contents.of(TPU, "cuda").loops[0].kernels == 3
    outside = found.outside
    assert outside.kernels == 1  # the all-reduce; the copies go on beside it
    assert outside.bytes == STACK + 3 * SLICE + SLICE
    assert outside.touched == 2 * (STACK + 3 * SLICE) + 2 * SLICE
    assert found.total("bytes", 1.0) == outside.bytes + 12 * loop.bytes
    assert found.unknown == ()
    assert found.largest[0].shape == "f32[12,64,128]"


def test_rounds_are_those_of_the_condition_where_the_compiler_does_not_say():
    """As TPU's does not; of a loop that goes on until something else holds nothing is known."""
    silent = TPU.replace('"known_trip_count":{"n":"12"},', "")
    assert [loop.rounds for loop in contents.of(silent, "tpu").loops] == [12]
    until = silent.replace("direction=LT", "direction=NE")
    assert [loop.rounds for loop in contents.of(until, "tpu").loops] == [None]


def test_what_is_sent_follows_from_the_group():
    found = contents.of(TPU, "tpu").collectives(1.0)
    assert found == [{"kind": "all-reduce", "group": 4, "count": 1, "bytes": SLICE, "sent": 1.5 * SLICE}]


def test_what_hosts_send_to_other_slices_is_no_round_trip():
    rest = ', channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="HANDLER"}'
    lines = [
        "  %x = f32[64,128]{1,0} parameter(0)",
        "  %t = token[] after-all()",
        f"  %send = (f32[64,128]{{1,0}}, u32[], token[]) send(%x, %t){rest}",
        f"  ROOT %done = token[] send-done(%send){rest}",
    ]
    text = "ENTRY %main (x: f32[64,128]) -> token[] {\n" + "\n".join(lines) + "\n}\n"
    between, host = (
        contents.of(text.replace("HANDLER", name), "tpu").outside for name in ("xla_megascale_runtime", "callback")
    )
    assert (between.between_slices, between.host) == (SLICE, 0)
    assert host.between_slices == 0
    assert host.host >= 1


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("[2,4]<=[8]", 4),
        ("{{0,1},{2,3}}", 2),
        ("mesh['axis_0'=4,'axis_1'=1,'axis_2'=4], device_ids=([4,4]T(1,0)) {'axis_0','axis_2'}", 16),
        ("mesh['axis_0'=16,'axis_1'=1] {'axis_0':(2)8}", 8),
    ],
)
def test_groups_however_they_are_written(written, group):
    found = contents.of(TPU.replace("[2,4]<=[8]", written), "tpu").collectives(1.0)
    assert [one["group"] for one in found] == [group]


@pytest.mark.parametrize(
    ("shape", "opcode", "made"),
    [
        ("((f32[64,128]{1,0}), f32[64,128]{1,0})", "all-to-all-start", SLICE),
        ("(f32[64,128]{1,0}, f32[256,128]{1,0})", "all-gather-start", 4 * SLICE),
        ("f32[64,128]{1,0}", "all-reduce-start", SLICE),
        ("((f32[64,128]{1,0}), f32[16,128]{1,0})", "reduce-scatter-start", SLICE),
    ],
)
def test_what_is_begun_makes_its_result_alone(shape, opcode, made):
    begun = TPU.replace("f32[64,128]{1,0:T(8,128)} all-reduce(", f"{shape} {opcode}(")
    (found,) = contents.of(begun, "cuda").collectives(1.0)
    assert (found["kind"], found["bytes"]) == (opcode.removesuffix("-start"), made)


def test_the_same_channel_twice_is_sent_twice():
    twice = TPU.replace("  ROOT %all-reduce.30", "  %all-reduce.33", 1)
    line = next(line for line in twice.splitlines() if "%all-reduce.33" in line)
    twice = twice.replace(line, line + "\n" + line.replace("  %all-reduce.33", "  ROOT %all-reduce.34"))
    assert contents.of(twice, "tpu").collectives(1.0)[0]["count"] == 2


def test_a_program_compiled_here():
    """A loop that its data end, a sort, a gather and a loop of known length in one program."""

    def f(x, index):
        x = jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: jax.lax.sort(x) * 0.5, x)
        y, _ = jax.lax.scan(lambda y, row: (y @ row, None), jnp.outer(x, x), jnp.stack([jnp.outer(x, x)] * 7))
        return y[index]

    shapes = jax.ShapeDtypeStruct((64,), np.float32), jax.ShapeDtypeStruct((5,), np.int32)
    text = jax.jit(f).lower(*shapes).compile().as_text()
    found = contents.of(text, "cuda")
    by_rounds = {loop.rounds: loop for loop in found.loops}
    assert by_rounds.keys() >= {None, 7}
    assert by_rounds[None].sorts == 1
    assert by_rounds[None].host == 1  # where kernels are launched from the host
    assert contents.of(text, "tpu").total("host", 9.0) == 0
    assert found.total("sorts", 9.0) == 9
    assert found.total("gathers", 9.0) >= 1
    assert found.total("kernels", 9.0) - found.total("kernels", 8.0) == by_rounds[None].kernels


@pytest.fixture(scope="module")
def mesh():
    return jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))


def test_collectives_of_a_program_on_eight_devices(mesh):
    spec = jax.sharding.PartitionSpec("a")

    def f(x):
        everything = jax.lax.all_gather(x, "a", tiled=True)
        exchanged = jax.lax.all_to_all(x, "a", 1, 0, tiled=True)
        scattered = jax.lax.psum_scatter(everything, "a", tiled=True)
        return jax.lax.psum(exchanged.sum() + scattered.sum(), "a")

    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec(), check_vma=False)
    x = jax.ShapeDtypeStruct((64, 32), np.float32, sharding=jax.sharding.NamedSharding(mesh, spec))
    text = jax.jit(mapped).lower(x).compile().as_text()
    found = {one["kind"]: one for one in contents.of(text, "tpu").collectives(1.0)}
    whole, part = 64 * 32 * 4, 64 * 32 * 4 // 8
    assert found["all-gather"]["sent"] == whole * 7 / 8
    assert found["all-to-all"]["bytes"] == part
    assert found["all-to-all"]["sent"] == part * 7 / 8
    assert found["reduce-scatter"]["sent"] == whole * 7 / 8
    assert found["all-reduce"]["sent"] == 2 * 7 / 8 * 4
    assert {one["group"] for one in found.values()} == {8}


def test_what_is_no_program_is_said_to_be_none():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.parse("hello")


@pytest.mark.parametrize(
    ("target", "sorts"), [("__gpu$TopK", 1), ("TopK", 1), ("__gpu$xla.gpu.triton", 0), ("tpu_custom_call", 0)]
)
def test_a_sort_is_a_librarys_top_k_not_a_kernel_named_after_one(target, sorts):
    call = f'custom-call(%x), custom_call_target="{target}", backend_config={{name = "topk_threshold"}}'
    text = f"ENTRY %main (x: f32[8]) -> f32[8] {{\n  %x = f32[8] parameter(0)\n  ROOT %y = f32[8] {call}\n}}\n"
    assert contents.of(text, "cuda").outside.sorts == sorts
