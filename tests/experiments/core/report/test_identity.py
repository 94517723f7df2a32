"""Which fields of a config a run reads."""

from experiments.core.kinds import Kinds
from experiments.core.report.identity import Identity, dotted, is_bookkeeping
from experiments.core.report.results import Run

IDENTITY = Identity(
    kinds=Kinds(
        "method",
        reads={"hard": ["every"], "relaxed": ["lam", "every"], "dense": []},
        only_if={"lam.end": ("lam.schedule", ["geometric"])},
    ),
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


def run_of(**changed):
    return Run("", CONFIG | changed, [], {})


def test_a_difference_is_one_of_methods_where_all_else_is_alike():
    run = run_of(steps=100, images=None, optimizer={"learning_rate": 0.1})
    alike = [
        run_of(steps=100, method="hard", every=4),
        run_of(steps=100, lam={"schedule": "constant", "start": 2}, seeds=[1]),
        run_of(steps=100, inputs="raw", optimizer={"name": "adam", "learning_rate": 0.3}, accumulate=2, eval_every=10),
    ]
    others = [
        run_of(steps=200),
        run_of(steps=100, images=10),
        run_of(steps=100, inputs="unit"),
        run_of(steps=100, features={"layer": "pooled"}),
        run_of(),
    ]
    assert IDENTITY.circumstances(run) == {"inputs": "raw", "steps": 100}
    assert IDENTITY.comparable(run, [run, *alike, *others]) == [run, *alike]
    assert IDENTITY.comparable(run, others, but=("steps", "images")) == [others[0], others[1], others[4]]
