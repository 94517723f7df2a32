"""Which fields of a config a run reads."""

from experiments.core.report.identity import Identity, dotted, is_bookkeeping

IDENTITY = Identity(
    entry="method",
    reads={"hard": ["every"], "relaxed": ["lam", "every"], "dense": []},
    only_if={"lam.end": ("lam.schedule", "geometric")},
    known={"method": ["hard", "relaxed", "dense"]},
    parts=lambda run: [run.config["method"]],
    told=("method", "lam"),
    earlier={"inputs": "raw"},
)
CONFIG = {"method": "relaxed", "every": 3, "lam": {"schedule": "constant", "start": 1, "end": 2}, "seeds": [0]}


def read(**changed):
    return IDENTITY.fields(dotted(CONFIG | changed))


def test_fields_of_other_entries_and_of_what_is_off_are_not_read():
    assert read() == {"every": 3, "inputs": "raw", "lam.schedule": "constant", "lam.start": 1, "method": "relaxed"}
    assert read(lam={"schedule": "geometric", "end": 2})["lam.end"] == 2
    assert read(method="hard") == {"every": 3, "inputs": "raw", "method": "hard"}
    assert read(method="dense", inputs="unit") == {"inputs": "unit", "method": "dense"}


def test_of_an_entry_that_is_gone_every_field_may_be_read():
    assert read(method="gone").keys() == read().keys()


def test_sections_count_as_their_fields():
    assert IDENTITY.tells("lam.start")
    assert not IDENTITY.tells("lambda")
    assert not IDENTITY.tells("every")
    assert is_bookkeeping("mesh.data")
    assert not is_bookkeeping("input.size")
