"""Files of torch's old format, put together by instructions: what they hold, and that they can do no harm."""

import pickle
import struct

import numpy as np
import pytest

from experiments.core.errors import UsageError
from experiments.vision.torch_file import read

RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=10).astype("<f4")
WHOLES = np.array([3, -7], "<i8")
STOP, NONE, FALSE = b".", b"N", b"\x89"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    """An instruction for four bytes, or one for eight."""
    return b"J" + struct.pack("<i", value) if abs(value) < 2**31 else b"\x8a\x08" + struct.pack("<q", value)


def tup(*parts):
    return b"(" + b"".join(parts) + b"t"


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


EMPTY = name("collections", "OrderedDict") + b")R"


def storage(key="a", size=10, kind="FloatStorage"):
    dtype = kind if isinstance(kind, bytes) else name("torch", kind)
    return tup(text("storage"), dtype, text(key), text("cpu"), number(size), NONE) + b"Q"


def tensor(shape=(2, 3), strides=None, offset=0, of=None):
    if strides is None:
        strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    arguments = (of or storage(), number(offset), tup(*map(number, shape)), tup(*map(number, strides)), FALSE, EMPTY)
    return name("torch._utils", "_rebuild_tensor_v2") + tup(*arguments) + b"R"


def state(*entries):
    return EMPTY + b"(" + b"".join(text(key) + value for key, value in entries) + b"u"


def content(value=None, keys=("a",), data=None, system=b"\x88"):
    """A whole file: by default one tensor `w`, the first six of ten numbers."""
    if data is None:
        data = struct.pack("<q", 10) + FLOATS.tobytes()
    listed = b"](" + b"".join(map(text, keys)) + b"e"
    parts = (
        b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",  # the magic number
        number(1001),
        b"}(" + text("little_endian") + system + b"u",
        state(("w", tensor())) if value is None else value,
        listed,
    )
    return b"".join(b"\x80\x02" + part + STOP for part in parts) + data


def write(tmp_path, written):
    path = tmp_path / "weights.pth"
    path.write_bytes(written)
    return path


def test_tensors_are_what_they_were(tmp_path):
    half = storage("h", 4, "HalfStorage")
    value = state(
        ("part", tensor((4,), offset=6)),
        ("w", tensor()),
        ("steps", tensor((), offset=1, of=storage("n", 2, "LongStorage"))),
        ("h", tensor((2, 1, 2), of=half)),
        ("none", tensor((0,), of=half)),
        ("turned", tensor((3, 2), (1, 3), offset=1)),
        ("channels_last", tensor((1, 2, 2, 2), (8, 1, 4, 2))),
    )
    value += b"}" + text("_metadata") + EMPTY + b"sb"  # as modules of torch have it
    halves = np.arange(4, dtype="<f2") / 2
    data = [(10, FLOATS), (4, halves), (2, WHOLES)]
    data = b"".join(struct.pack("<q", size) + array.tobytes() for size, array in data)
    found = read(write(tmp_path, content(value, ("a", "h", "n"), data)))
    assert list(found) == ["part", "w", "steps", "h", "none", "turned", "channels_last"]
    np.testing.assert_array_equal(found["w"], FLOATS[:6].reshape(2, 3))
    np.testing.assert_array_equal(found["part"], FLOATS[6:])
    assert found["steps"] == -7
    assert found["h"].dtype == np.float16
    np.testing.assert_array_equal(found["h"], halves.reshape(2, 1, 2))
    assert found["none"].shape == (0,)
    np.testing.assert_array_equal(found["turned"], FLOATS[1:7].reshape(2, 3).T)
    np.testing.assert_array_equal(found["channels_last"], FLOATS[:8].reshape(1, 2, 2, 2).transpose(0, 3, 1, 2))


def test_nothing_is_executed(tmp_path):
    """What Python's own reader does with the first pickle of this file is the proof that there is something to do."""
    done = tmp_path / "done"
    call = name("os", "mkdir") + tup(text(str(done))) + b"R"
    pickle.loads(b"\x80\x02" + call + STOP)
    assert done.is_dir()
    done.rmdir()
    for value in (call, state(("w", call)), state(("w", tensor(of=call)))):
        with pytest.raises(UsageError, match=r"weights.pth is no file of tensors .*: it asks for 'os.mkdir'"):
            read(write(tmp_path, content(value)))
    assert not done.exists()


# 2^200 entries, if written out.
LAUGHS = b")" + b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(200))
NO_TYPE, NOT_TENSORS, DAMAGED = "a storage has no type", "else than a dictionary of tensors", "pickles is damaged"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b"", DAMAGED),
        (content()[:-1], "storage 'a' does not have the 10 elements"),
        (content() + b"\0", "1 bytes follow the last storage"),
        (content(system=b"\x89"), "it is not in little-endian order"),
        (content(number(7)), NOT_TENSORS),
        (content(state(("w", tensor((2, 3), offset=5)))), r"shape \(2, 3\) needs more than the 10 elements"),
        (content(state(("w", tensor((-1, 3))))), "a size is -1"),
        (content(state(("w", tensor((2**20, 2**15, 2**15))))), "needs more than the 10 elements"),
        (content(state(("w", tensor((2**30,), (0,))))), "has gaps or overlaps"),
        (content(state(("w", tensor((2, 3), (3,))))), DAMAGED),
        (content(state(("w", tensor((1,) * 17)))), "a tensor has 17 axes"),
        (content(state(("w", tensor(of=storage(size=2**30))))), "storage 'a' does not have the 1073741824 elements"),
        (content(state(("w", tensor(of=storage(kind="Storage"))))), "it asks for 'torch.Storage'"),
        (content(state(("w", tensor(of=storage(kind=text("torch FloatStorage")))))), NO_TYPE),
        (content(state(("w", tensor(of=number(10))))), "lacks its storage"),
        (content(state(("w", tensor()), ("v", tensor(of=storage(size=9))))), "do not agree on the storage"),
        (content(keys=("a", "b")), "the list of its storages is not that of its tensors"),
        (content(name("collections", "OrderedDict") + tup(number(1)) + b"R"), "it calls 'collections.OrderedDict'"),
        (content(text("os.system") + tup(text("true")) + b"R"), "it calls something that is no function"),
        (content(name("torch", "FloatStorage") + b"}b"), "it sets the state of an object"),
        (content(b"(" + text("true") + b"ios\nsystem\n"), "instruction INST"),
        (content(name("collections", "OrderedDict") + b")\x81"), "instruction NEWOBJ"),
        (content(text("os") + text("system") + b"\x93"), "instruction STACK_GLOBAL"),
        (content(b"r\xff\xff\xff\xff"), DAMAGED),  # a place in the memo, of nothing
        (content(EMPTY + b"(" + LAUGHS + number(1) + b"u"), "puts entries into something else"),
        (content(state(("w", tensor(of=storage(kind=LAUGHS))))), NO_TYPE),
        (content(b"}" * 2**20), "damaged"),
    ],
)
def test_anything_else_is_refused_in_one_line(written, message, tmp_path):
    with pytest.raises(UsageError, match=message) as refused:
        read(write(tmp_path, written))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300 + len(str(tmp_path))


def test_a_file_that_is_cut_short_or_changed_is_read_or_refused(tmp_path):
    whole = content()
    for end in range(len(whole)):
        with pytest.raises(UsageError):
            read(write(tmp_path, whole[:end]))
    rng, refused = np.random.default_rng(1), 0
    header = len(whole) - 4 * len(FLOATS)
    for _ in range(200):
        changed = bytearray(whole)
        for place in rng.integers(header, size=rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        try:
            found = read(write(tmp_path, bytes(changed)))
        except UsageError:
            refused += 1
        else:
            assert all(isinstance(array, np.ndarray) for array in found.values())
    assert refused > 100
