"""Chunks are made ahead, in order; that both feeds hand out the same batches is in `test_train_steps.py`."""

from experiments.core.training import feed


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
