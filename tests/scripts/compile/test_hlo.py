# ruff: noqa: E501  (the compiler prints long lines)
"""Collectives and arrays of programs compiled here, and of lines as TPU's compiler prints them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scripts.compile import hlo
from scripts.compile.hlo import Collective

# A program of TPU's compiler, shortened: a loop of twelve rounds with a collective, arrays in memory and on the chip.
TPU = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[12,64,128]{2,1,0})->f32[64,128]{1,0}}

%fused_computation.1 (param_0.1: f32[12,64,128]) -> f32[64,128] {
  %param_0.1 = f32[12,64,128]{2,1,0:T(8,128)} parameter(0)
  ROOT %convert.4 = f64[12,64,128]{2,1,0:T(8,128)} convert(%param_0.1)
}

%add.6 (x.7: f32[], y.8: f32[]) -> f32[] {
  ROOT %add.9 = f32[]{:T(128)} add(%x.7, %y.8)
}

%wide.body.5 (arg.12: (s32[], /*index=2*/f32[64,128])) -> (s32[], f32[64,128]) {
  %fusion.15 = f32[32,128]{1,0:T(8,128)S(1)} fusion(%arg.12), kind=kLoop, calls=%fused_computation.1, metadata={op_name="jit(f)/while/body/slice"}
  %all-gather.16 = f32[64,128]{1,0:T(8,128)} all-gather(%fusion.15), channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}, metadata={op_name="jit(f)/while/body/gather"}
  ROOT %tuple.17 = (s32[]{:T(128)}, /*index=2*/f32[64,128]{1,0:T(8,128)S(1)}) tuple(%arg.12, %all-gather.16)
}

%wide.cond.4 (arg.18: (s32[], f32[64,128])) -> pred[] {
  %constant.20 = s32[]{:T(128)} constant(12), backend_config={"flag_configs":[]}
  ROOT %compare.21 = pred[]{:T(512)} compare(%get-tuple-element.19, %constant.20), direction=LT
}

ENTRY %main.22 (x.23: f32[12,64,128]) -> f32[64,128] {
  %x.23 = f32[12,64,128]{2,1,0:T(8,128)} parameter(0), metadata={op_name="state.params[\\'x\\']"}
  %while.28 = (s32[]{:T(128)}, f32[12,64,128]{2,1,0:T(8,128)}) while(%x.23), condition=%wide.cond.4, body=%wide.body.5, metadata={op_name="jit(f)/while"}, backend_config={"flag_configs":[]}
  ROOT %all-reduce.30 = f32[64,128]{1,0:T(8,128)} all-reduce(%get-tuple-element.29), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%add.6, metadata={op_name="jit(f)/psum"}
}
"""
SIZE = 64 * 128 * 4
GATHER, REDUCE = Collective("all-gather", 2, 12, 12 * 0.5 * SIZE), Collective("all-reduce", 4, 1, 1.5 * SIZE)


def test_collectives_count_loop_iterations():
    assert hlo.read(TPU)[0] == [GATHER, REDUCE]


@pytest.mark.parametrize(
    ("old", "new", "rounds", "at_least"),
    [
        ('backend_config={"flag', 'backend_config={"known_trip_count":{"n":"7"},"flag', 7, False),
        ("direction=LT", "direction=NE", 1, True),  # it goes on until something else holds
        ("ROOT %compare.21", "%compare.21", 1, True),  # or besides
    ],
)
def test_loop_rounds_are_known_or_a_minimum(old, new, rounds, at_least):
    found = {one.kind: one for one in hlo.read(TPU.replace(old, new))[0]}
    assert found["all-gather"] == Collective("all-gather", 2, rounds, rounds * 0.5 * SIZE, at_least)
    assert found["all-reduce"] == REDUCE


def test_largest_arrays_are_in_memory():
    """Neither what a fusion has inside, nor tuples, nor what stays on the chip."""
    found = [(one.shape, one.bytes, one.source) for one in hlo.read(TPU)[1]]
    assert found[:2] == [
        ("f32[12,64,128]", 12 * SIZE, "state.params['x']"),
        ("f32[64,128]", SIZE, "jit(f)/while/body/gather"),
    ]
    assert all(size <= 4 for _, size, _ in found[2:])
    assert len(hlo.read(TPU, number=1)[1]) == 1


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
    found = hlo.read(TPU.replace("[2,4]<=[8]", written))[0]
    assert {one.group for one in found if one.kind == "all-reduce"} == {group}


@pytest.mark.parametrize(
    ("shape", "opcode", "sent"),
    [
        ("f32[64,128]{1,0}", "all-reduce", 1.5 * SIZE),
        ("f32[64,128]{1,0}", "all-reduce-start", 1.5 * SIZE),
        ("f32[64,128]{1,0}", "reduce-scatter", 3 * SIZE),
        ("f32[64,128]{1,0}", "collective-permute", SIZE),
        ("f32[64,128]{1,0}", "ragged-all-to-all", 0.75 * SIZE),
        ("((f32[64,128]{1,0}), f32[64,128]{1,0})", "all-to-all-start", 0.75 * SIZE),
        ("(f32[64,128]{1,0}, f32[256,128]{1,0})", "all-gather-start", 3 * SIZE),
        ("((f32[64,128]{1,0}), f32[16,128]{1,0})", "reduce-scatter-start", 0.75 * SIZE),
        ("(f32[64,128]{1,0}, f32[64,128]{1,0}, u32[]{:S(2)}, u32[]{:S(2)})", "collective-permute-start", SIZE),
    ],
)
def test_bytes_sent_by_each_collective(shape, opcode, sent):
    """Counts what the best algorithm sends among four devices."""
    text = TPU.replace("f32[64,128]{1,0:T(8,128)} all-reduce(", f"{shape} {opcode}(")
    found = {one.kind: one for one in hlo.read(text)[0] if one != GATHER}
    kind = opcode.removesuffix("-start").removeprefix("ragged-")
    assert found == {kind: Collective(kind, 4, 1, sent)}


@pytest.mark.parametrize(("handler", "sends"), [("xla_megascale_runtime", 1), ("callback", 0)])
def test_what_hosts_send_to_other_slices(handler, sends):
    rest = f', channel_id=2, is_host_transfer=true, frontend_attributes={{_xla_host_transfer_handler_name="{handler}"}}'
    send = f"  %send = (f32[64,128]{{1,0}}, u32[], token[]) send(%x, %t){rest}\n"
    found = hlo.read("ENTRY %main (x: f32[64,128]) -> token[] {\n" + send + "}\n")[0]
    assert found == sends * [Collective("send to other slices", 2, 1, SIZE)]


def test_a_program_on_eight_devices():
    mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    spec, whole = jax.sharding.PartitionSpec("a"), jax.sharding.PartitionSpec()

    def f(x):
        everything = jax.lax.all_gather(x, "a", tiled=True)
        exchanged = jax.lax.all_to_all(x, "a", 1, 0, tiled=True)
        scattered = jax.lax.psum_scatter(everything, "a", tiled=True)
        # Three rounds, and as many as the data ask for.
        x, _ = jax.lax.scan(lambda x, _: (jnp.sin(jax.lax.ppermute(x, "a", [(0, 1)])), None), x, None, 3)
        y = jax.lax.while_loop(lambda y: y > 1, lambda y: jax.lax.pmax(y, "a") - 1, x.sum())
        return y + jax.lax.psum(exchanged.sum() + scattered.sum(), "a")

    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=whole, check_vma=False)
    x = jax.ShapeDtypeStruct((64, 32), np.float32, sharding=jax.sharding.NamedSharding(mesh, spec))
    found = {one.kind: one for one in hlo.read(jax.jit(mapped).lower(x).compile().as_text())[0]}
    size = 64 * 32 * 4
    assert found["all-gather"] == Collective("all-gather", 8, 1, size * 7 / 8)
    assert found["all-to-all"].sent == size / 8 * 7 / 8
    assert found["reduce-scatter"].sent == size * 7 / 8
    assert (found["collective-permute"].count, found["collective-permute"].sent) == (3, 3 * size / 8)
    assert found["all-reduce"] == Collective("all-reduce", 8, 2, 2 * 2 * 7 / 8 * 4, at_least=True)


def test_text_without_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.read("hello")
