"""Feeds: the same batches from the device as from the host."""

import jax
import numpy as np

from experiments.core.input import stream
from experiments.core.training import feed
from experiments.core.training import mesh as mesh_lib
from tests.experiments.toy import toy_config

RNG = np.random.default_rng(0)
EXAMPLES = {"image": RNG.integers(0, 256, (100, 2, 2, 1), np.uint8), "label": np.arange(100, dtype=np.int32)}
MESH = mesh_lib.make(toy_config(mesh={"data": 4, "fsdp": 2}))


def test_both_feeds_take_the_same_batches():
    resident = feed.Resident(EXAMPLES, (7,), 24, 3, MESH, seed_axis=False)
    rows = mesh_lib.local_rows(MESH, 24)
    streamed = feed.Streamed(stream.Shuffled(EXAMPLES, 24, 7, rows), 24, 3, MESH)
    for first_step in (0, 3):
        chunks = [made.chunk(first_step) for made in (resident, streamed)]
        for step in range(3):
            batches = [
                made.take(made.examples, jax.tree.map(lambda leaf, step=step: leaf[step], chunk))
                for made, chunk in zip((resident, streamed), chunks, strict=True)
            ]
            jax.tree.map(np.testing.assert_array_equal, *batches)
    assert rows.tolist() == list(range(24))  # of a process alone
    image = streamed.chunk(0)["image"]
    assert {shard.data.shape for shard in image.addressable_shards} == {(3, 3, 2, 2, 1)}


def test_a_process_reads_its_rows_alone():
    whole = stream.Shuffled(EXAMPLES, 24, 7, np.arange(24)).batch(5)
    part = stream.Shuffled(EXAMPLES, 24, 7, np.arange(6, 12)).batch(5)
    jax.tree.map(lambda all_rows, some: np.testing.assert_array_equal(all_rows[6:12], some), whole, part)
    last = stream.InOrder(EXAMPLES, 24, np.arange(0, 24, 2)).batch(4)["label"]
    np.testing.assert_array_equal(last, [96, 98, *[99] * 10])


def test_chunks_are_made_ahead_in_order():
    class Recording:
        ahead = 2

        def __init__(self):
            self.made = []

        def chunk(self, first_step):
            self.made.append(first_step)
            return first_step

    recording = Recording()
    chunks = feed.chunks(recording, range(0, 10, 2))
    assert next(chunks) == 0
    assert recording.made == [0, 2, 4]
    assert list(chunks) == [2, 4, 6, 8]
    assert recording.made == [0, 2, 4, 6, 8]
