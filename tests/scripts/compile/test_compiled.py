"""Memory of programs, and why a compiler refuses them; the same program is compiled once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.core.record import chips
from scripts.compile import compiled, compiler

SLICE = chips.parse("v5litepod-1")
X = jax.ShapeDtypeStruct((128, 128), np.float32)


@pytest.fixture(autouse=True)
def versions(monkeypatch):
    monkeypatch.setattr(compiler, "versions", lambda platform: {"jax": jax.__version__})


class Lowered:
    """A program that a compiler refuses."""

    def __init__(self, message):
        self.message = message

    def as_text(self, dialect=None, **options):
        f = lambda x: jax.lax.scan(lambda x, _: (jnp.outer(x, x).sum(axis=0), None), x, None, 3)[0]  # noqa: E731
        return jax.jit(f).lower(jax.ShapeDtypeStruct((64,), np.float32)).as_text(dialect, **options)

    def compile(self):
        raise RuntimeError(self.message)


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        ("Ran out of memory in memory space hbm. Used 20.51G of 15.75G hbm. Exceeded hbm capacity by 4.76G.", 20.51),
        (
            "Ran out of memory on HBM, the total memory required for HLO temporaries (74.96G) exceeds available HBM "
            "(15.75G).",
            74.96,
        ),
    ],
)
def test_a_program_that_is_too_large(tmp_path, message, needed):
    """Its largest arrays are those of its text before they are divided among devices."""
    found = compiled.outcome(Lowered(f"RESOURCE_EXHAUSTED: {message}"), SLICE, tmp_path)
    assert not found["fits"]
    assert (found["needed"], found["available"]) == (needed * 2**30, 15.75 * 2**30)
    assert (found["largest"][0]["shape"], found["largest"][0]["bytes"]) == ("f32[64,64]", 64 * 64 * 4)


def test_other_refusals_are_not_cached(tmp_path):
    with pytest.raises(compiled.Refused, match=r"^INTERNAL: Mosaic failed: two lines$"):
        compiled.outcome(Lowered("INTERNAL: Mosaic failed:\n  two lines"), SLICE, tmp_path)
    assert not list(tmp_path.iterdir())


def test_outcome_has_memory_and_is_cached(tmp_path, monkeypatch):
    lowered = jax.jit(lambda x, y: (x @ y, x), donate_argnums=0).lower(X, X)
    found = compiled.outcome(lowered, SLICE, tmp_path)
    size, memory = 128 * 128 * 4, found["memory"]
    assert memory["arguments"] == 2 * size
    assert memory["results"] < 2 * size  # one of them lies where an argument was
    assert found["needed"] == sum(memory.values())
    assert (found["fits"], found["available"], found["collectives"]) == (True, 16 * 2**30, [])
    assert (found["largest"][0]["shape"], found["largest"][0]["bytes"]) == ("f32[128,128]", size)

    def refuse(*_):
        raise AssertionError("it is compiled again")

    monkeypatch.setattr(compiled, "_compile", refuse)
    assert compiled.outcome(jax.jit(lambda x, y: (x @ y, x), donate_argnums=0).lower(X, X), SLICE, tmp_path) == found
    with pytest.raises(AssertionError):
        compiled.outcome(lowered, chips.parse("v6e-1"), tmp_path)


def test_program_over_memory_does_not_fit(tmp_path, monkeypatch):
    """Where the compiler itself takes it, as that for GPUs does."""
    small = chips.Slice("tiny-1", chips.Chip("tiny", ("tiny",), 1e12, memory=1e5), "cuda", 1, "", 1)
    assert not compiled.outcome(jax.jit(lambda x, y: x @ y).lower(X, X), small, tmp_path)["fits"]
