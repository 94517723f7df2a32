"""The kernels, interpreted, give what the loop and the oracles give; and they are taken where they are said to be."""

import dataclasses
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import ops
from ops.arithmetic import TwoFloat
from ops.nonlinearities import ABS, EXP, HALF_SQUARE, IDENTITY
from ops.scalar import rows
from ops.scalar.equation import Equation, _has_kink, selection
from ops.scalar.kernels import divided, gpu, platforms
from ops.scalar.kernels.divided import by_kernel
from ops.scalar.kernels.solver import kernel_of
from ops.scalar.mask import tied_selection
from ops.scalar.threshold import _solve
from tests.ops import oracles


def rows_of(n, phi, seed=0):
    """Rows of all kinds, with ``k`` and ``lam``; the last four hold what no oracle takes."""
    rng = np.random.default_rng(seed)
    count = 24
    x = rng.normal(size=(count, n)).astype(np.float32)
    k = rng.uniform(0, 0.5 * n, size=(count, 1)).astype(np.float32)
    lam = (10 ** rng.uniform(-3, 1, size=(count, 1))).astype(np.float32)
    lam[:6] = 0
    x[4:9] = rng.integers(-3, 4, size=(5, n))  # ties
    k[9:12], k[12:14] = 0, n
    k[14:17] = np.round(k[14:17])
    x[17] += 1000
    if phi == HALF_SQUARE:
        x[18:20, ::2] = 0
    else:
        x[18:20, n // 3 :] = -np.inf  # fewer than k may be left
    k[4] = 1
    x[20, 3], lam[21], k[22] = np.nan, np.nan, np.nan
    x[23, :2] = np.inf
    return x, k, lam


def shares(solve, equation, x, k, lam):
    """How much of every entry is selected, by thresholds that ``solve`` finds."""

    @jax.jit
    def run(x, k, lam):
        s = equation.keys(x, lam)
        gamma = solve(x, k, lam)
        return selection(s, gamma, lam, equation) + tied_selection((s,), gamma, k, lam, equation.rows)[0]

    return np.asarray(run(x, k, lam))


@pytest.mark.parametrize(
    ("language", "n", "phi", "p"),
    [
        ("triton", 50, IDENTITY, 1.1),
        ("tpu", 8200, IDENTITY, 4 / 3),  # long rows: one by one, and in pieces
        ("mosaic", 5000, HALF_SQUARE, 4 / 3),
    ],
)
def test_kernels_agree_with_the_loop(language, n, phi, p):
    equation = Equation(p, phi, zero="some")
    x, k, lam = rows_of(n, phi)

    def solve(entries, k, lam, rows):
        return _solve(entries, k, lam, dataclasses.replace(equation, rows=rows))[0]

    def kernel(x, k, lam):
        keys = lambda x, k, lam: equation.keys(x, lam)  # noqa: E731
        return kernel_of(language, x, k, lam, keys=keys, solve=solve, interpret=True)

    def loop(x, k, lam):
        return _solve((equation.keys(x, lam),), k, lam, equation)[0]

    z, expected = shares(kernel, equation, x, k, lam), shares(loop, equation, x, k, lam)
    hard = lam[:, 0] == 0
    np.testing.assert_array_equal(z[hard], expected[hard])
    np.testing.assert_allclose(z, expected, rtol=2e-4 if p < 1.2 else 2e-5, atol=2e-6)
    assert np.isnan(z[20:23]).all()


@pytest.fixture
def numbers_over_nans(monkeypatch):
    """Inside kernels, a maximum or minimum of a NaN and a number is the number, as in what Triton makes of them."""
    smaller, larger, call = jnp.minimum, jnp.maximum, pl.pallas_call

    def over(function):
        return lambda a, b: jnp.where(a != a, b, jnp.where(b != b, a, function(a, b)))

    def pallas_call(kernel, **options):
        def run(*refs):
            with monkeypatch.context() as inside:
                for module, names in ((jnp, ("minimum", "maximum")), (jax.lax, ("min", "max"))):
                    for name, function in zip(names, (smaller, larger), strict=True):
                        inside.setattr(module, name, over(function))
                return kernel(*refs)

        return call(run, **options)

    monkeypatch.setattr(pl, "pallas_call", pallas_call)


def test_a_nan_marks_its_row_on_a_gpu(numbers_over_nans):
    x = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    k, lam = np.full((4, 1), 5, np.float32), np.full((4, 1), 0.1, np.float32)
    x[1, 7], k[2], lam[3] = np.nan, np.nan, np.nan
    equation = Equation(4 / 3, HALF_SQUARE)

    def solve(entries, k, lam, rows):
        return _solve(entries, k, lam, dataclasses.replace(equation, rows=rows))[0]

    @jax.jit
    def thresholds(x, k, lam):
        return kernel_of("triton", x, k, lam, keys=lambda x, k, lam: equation.keys(x, lam), solve=solve, interpret=True)

    assert np.isnan(thresholds(x, k, lam).hi)[:, 0].tolist() == [False, True, True, True]


X = np.random.default_rng(1).normal(size=(8, 24)).astype(np.float32)
K = np.linspace(0, 12, 8, dtype=np.float32)


def check(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_on_a_mesh(kind):
    """Rows stay where they are; where rows themselves are divided, the loop solves them, and none is gathered."""
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=2 * (kind,))
    place = P("a", "b") if kind == AxisType.Auto else P(("a", "b"), None)
    x = jax.device_put(X, NamedSharding(mesh, place))
    with jax.set_mesh(mesh):
        call = jax.jit(lambda x: ops.topk_mask(x, 5, solver="kernel")).lower(x).compile()
    y = call(x)
    assert y.sharding.spec == place
    check(y, ops.topk_mask(X, 5))
    assert "all-gather" not in call.as_text()
    assert ("all-reduce" in call.as_text()) == (kind == AxisType.Auto)


@pytest.mark.parametrize("shape", [(8, 1), (1, 1)])
def test_in_shard_map_over_some_axes(monkeypatch, shape):
    """A kernel is not divided any further, and GPUs' compiler asks even where one device is all there is to an axis."""
    monkeypatch.setattr(platforms, "target", lambda: ("cuda", ""))
    monkeypatch.setattr(rows, "target", platforms.target)
    mesh = jax.make_mesh(shape, ("a", "b"), axis_types=2 * (AxisType.Auto,), devices=jax.devices()[: np.prod(shape)])
    part = jax.shard_map(
        lambda x: ops.topk_mask(x, 5), mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}, check_vma=False
    )
    assert bool(KERNELS & primitives(part, (8, 24))) == (shape == (1, 1))


def test_an_empty_batch():
    z = jax.vmap(lambda x: ops.topk_mask(x, 2, solver="kernel"))(jnp.zeros((0, 5)))
    assert z.shape == (0, 5)


KERNELS = {"pallas_call", "topk_by_kernel"}


def primitives(function, *shapes):
    jaxpr = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).jaxpr
    return {equation.primitive.name for equation in oracles.equations(jaxpr)}


def test_where_a_kernel_is_taken(monkeypatch):
    def pretend(platform, kind):
        for module in (platforms, rows):
            monkeypatch.setattr(module, "target", lambda: (platform, kind))

    for platform, kind, n, taken in (
        ("cpu", "", 301, False),
        ("tpu", "TPU v5 lite", 302, True),
        ("tpu", "TPU v4", 10_000_001, False),
        ("cuda", "", 100_001, True),
        ("cuda", "", 2_000_000, False),
    ):
        pretend(platform, kind)
        assert bool(KERNELS & primitives(lambda x: ops.topk_mask(x, 5), (3, n))) == taken, (platform, kind, n)
    pretend("tpu", "TPU v5 lite")
    assert not KERNELS & primitives(lambda x: ops.topk_mask(x, 5, solver="loop"), (3, 302))
    assert not KERNELS & primitives(lambda x: ops.topk_mag_tree({"x": x}, density=0.1), (3, 302))


def test_passes_ahead_of_a_loop_on_a_gpu(monkeypatch):
    mask = jax.jit(lambda x: ops.topk_mask(x, 20.5, solver="loop"))
    found, program = mask(X), str(mask.trace(X).jaxpr)
    monkeypatch.setattr(rows, "target", lambda: ("cuda", ""))
    assert rows.Rows().ahead((X, X)) == 0
    few = X[:7]  # of another shape, so that all is traced again
    np.testing.assert_allclose(mask(few), found[:7], atol=1e-6)
    assert str(mask.trace(few).jaxpr).count("log1p") == program.count("log1p") + 3


def test_gpus_that_triton_takes(monkeypatch):
    for capability, platform in (("9.0", "cuda"), ("7.5", "other gpu"), ("gfx942", "other gpu")):
        device = types.SimpleNamespace(platform="gpu", device_kind="a GPU", compute_capability=capability)
        monkeypatch.setattr(jax, "devices", lambda *_, device=device: [device])
        assert platforms.target() == (platform, "a GPU")


def test_what_no_kernel_takes_is_refused(x64):
    with pytest.raises(ValueError, match=r"^x must have a dtype of at most 32 bits, got float64"):
        ops.topk_mask(X.astype(np.float64), 2, solver="kernel")
    with pytest.raises(ValueError, match=r"^x must have at most 12582912 entries in a row, got 20000000"):
        jax.eval_shape(lambda x: ops.topk_mask(x, 2, solver="kernel"), jax.ShapeDtypeStruct((2 * 10**7,), jnp.float32))
    with pytest.raises(ValueError, match=r"^axis_name must be None unless solver is 'threshold' or 'loop'"):
        ops.topk_mask(X, 2, solver="kernel", axis_name="a")


def gives(number):
    """A stand-in for a kernel of an accelerator, which cannot be compiled here."""
    return lambda s, k: TwoFloat(jnp.full_like(k, number) + 0 * s[:, :1], k)


def test_indivisible_kernel_is_not_divided():
    """1 where the kernel is taken, 0 where the loop is."""
    taken = by_kernel([gives(1)], gives(0), divisible=False)
    mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Auto,))
    on_mesh = jax.device_put(X, NamedSharding(mesh, P("a")))
    assert jax.jit(taken)(X, K[:, None]).hi.sum() == 8
    assert jax.jit(taken)(on_mesh, K[:, None]).hi.sum() == 0
    by_hand = jax.shard_map(taken, mesh=mesh, in_specs=(P("a"), P("a")), out_specs=TwoFloat(P("a"), P("a")))
    assert jax.jit(by_hand)(X, K[:, None]).hi.sum() == 8


def raises(s, k):
    raise NotImplementedError("no such primitive")


def deprecated(s, k):
    warnings.warn("to be removed", DeprecationWarning, stacklevel=1)
    return gives(2)(s, k)


def test_falls_back_to_loop_and_warns_once(monkeypatch):
    monkeypatch.setattr(divided, "_WARNED_REASONS", [])
    taken = by_kernel([raises, deprecated, gives(1)], gives(0), divisible=True)
    assert jax.jit(taken)(X, K[:, None]).hi.sum() == 16  # the first that there is, and nobody is warned
    taken = by_kernel([raises, raises], gives(0), divisible=True)
    with pytest.warns(UserWarning, match="top-k is solved by the loop.*no such primitive"):
        assert jax.jit(taken)(X, K[:, None]).hi.sum() == 0
    assert jax.jit(taken)(X[:4], K[:4, None]).hi.sum() == 0


def test_exports_for_several_platforms(monkeypatch):
    """A kernel for GPUs cannot be compiled where it is not known for which: nothing is raised."""
    monkeypatch.setattr(divided, "_WARNED_REASONS", [])
    function = jax.jit(lambda x: ops.topk_mask(x, 5, solver="kernel"))
    with pytest.warns(UserWarning, match="top-k is solved by the loop"):
        exported = jax.export.export(function, platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((8, 24), jnp.float32))
    check(exported.call(X), ops.topk_mask(X, 5))


@pytest.mark.parametrize(("n", "both"), [(400, ("triton", "mosaic")), (8192, ("mosaic", "triton"))])
def test_what_kernels_are_written_in(monkeypatch, n, both):
    triton = ("triton",)
    kinds = {"NVIDIA H100 80GB HBM3": both, "NVIDIA GH200 480GB": both, "NVIDIA B200": both, "": triton}
    for kind, languages in (kinds | {"NVIDIA A100-SXM4-80GB": triton, "NVIDIA GeForce RTX 5090": triton}).items():
        monkeypatch.setattr(platforms, "target", lambda kind=kind: ("cuda", kind))
        assert platforms.languages("cuda", n) == languages


@pytest.mark.parametrize(
    ("name", "expected", "edges"),
    [
        ("floor", np.floor, [-np.inf, 2.0**24 + 2]),
        ("log1p", np.log1p, [np.inf, -1]),
        ("nextafter", lambda x: np.nextafter(x, np.float32(np.inf)), [-np.inf, np.nan]),
        ("pow", lambda x: x ** np.float32(1 / 3), [1e-30, 1e30]),
    ],
)
def test_primitives_that_mosaic_lacks(name, expected, edges):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-8, 8, size=500), [0, -0.0, 1, 2.5, -0.5], edges])
    x = {"log1p": lambda x: np.maximum(x, -1), "pow": np.abs}.get(name, np.asarray)(x).astype(np.float32)
    second = {"nextafter": [np.inf], "pow": [1 / 3]}.get(name, [])
    # Not in one program: XLA makes `log1p` of the logarithm of a sum, and what is made up for would be so twice.
    found = gpu._MOSAIC_REPLACEMENTS[name](jnp.asarray(x), *(jnp.full_like(x, value) for value in second))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found, expected(x), rtol=2e-6 if name in ("log1p", "pow") else 0)


def test_kinks_are_known_without_a_device(monkeypatch):
    """Tracing for a topology, whose devices only compile: what is known of a nonlinearity is not tried out."""
    monkeypatch.setattr(jax, "ensure_compile_time_eval", None)
    _has_kink.cache_clear()
    assert [Equation(2.0, phi).kinked for phi in (IDENTITY, ABS, HALF_SQUARE, EXP)] == [False, True, False, False]
