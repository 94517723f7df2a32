"""Names of runs, the runs that they are compared with, and those that cannot be shown."""

import dataclasses

import pytest

from experiments.core.kinds import Kinds
from experiments.core.report.presentation import Presentation, shown, written
from experiments.core.report.results import Run, pooled

PRESENTATION = Presentation(
    experiment="toy",
    kinds=Kinds(
        "method",
        reads={"hard": ["every"], "relaxed": ["lam", "p", "every"], "dense": []},
        only_if={"lam.end": ("lam.schedule", ["geometric"])},
    ),
    method=lambda fields: {"relaxed": "relaxed top-k", "hard": "hard top-k", "dense": "dense"}[fields["method"]],
    baseline="hard",
    setting=("budget",),
    always=("p",),
    names={"lam.start": "lam", "optimizer.learning_rate": "learning rate"},
)
CONFIG = {
    "method": "relaxed",
    "every": 3,
    "p": 2.0,
    "lam": {"schedule": "constant", "start": 1, "end": 2},
    "steps": 100,
    "optimizer": {"learning_rate": 0.1, "name": "sgd"},
}


def run_of(name, seeds=(0,), error=(1.0,), **changed):
    summary = {
        "state": "done",
        "seeds": list(seeds),
        "diverged": 0,
        "seconds": 1.0,
        "steps": 100,
        "epochs": 1,
        "final": {"error": {"per_seed": list(error)}},
    }
    return Run(name, CONFIG | {"seeds": list(seeds)} | changed, [], summary, {"experiment": "toy", "resumed": []})


def test_read_keeps_only_fields_in_use():
    fields = {"method": "hard", "every": 3, "lam.start": 1, "lam.schedule": "constant", "lam.end": 2, "p": 2.0}
    assert PRESENTATION.read(fields) == {"method": "hard", "every": 3}
    assert PRESENTATION.read(fields | {"method": "relaxed"}).keys() == fields.keys() - {"lam.end"}
    assert "lam.end" in PRESENTATION.read(fields | {"method": "relaxed", "lam.schedule": "geometric"})


def test_labels_show_fields_that_differ():
    lam = {"schedule": "constant", "end": 2}
    found = [
        run_of("a", lam=lam | {"start": 0.001}, eval_every=3),
        run_of("b", lam=lam | {"start": 0.1}, p=4 / 3, optimizer={"learning_rate": 0.3, "name": "sgd"}),
        run_of("c", method="hard", lam=lam | {"start": 7}),
        run_of("d", method="dense", every=1),
        run_of("e", method="dense", every=2),
    ]
    assert PRESENTATION.labels(found) == [
        "relaxed top-k, lam = 1e-3, learning rate 0.1, p = 2",
        "relaxed top-k, lam = 0.1, learning rate 0.3, p = 4/3",
        "hard top-k",
        "dense, [d]",
        "dense, [e]",
    ]


def test_method_name_may_use_unread_field():
    by_p = dataclasses.replace(PRESENTATION, method=lambda fields: f"{fields['method']}, {fields['p']:g}")
    assert by_p.labels([run_of("a"), run_of("b", method="hard")]) == ["relaxed, 2, p = 2", "hard, 2"]


def test_most_common_setting_is_left_out():
    runs = [run_of(str(i), method="hard", steps=100 + 100 * (i == 4)) for i in range(5)]
    assert PRESENTATION.settings(runs) == ["", "", "", "", "steps 200"]


@pytest.mark.parametrize(
    ("changed", "compared"),
    [
        ({"p": 4 / 3, "every": 4, "budget": "row", "accumulate": 2, "eval_every": 7}, True),
        ({"optimizer": {"learning_rate": 0.3, "name": "adam"}}, True),
        ({"steps": 200}, False),
        ({"images": 10}, False),
        ({"features": {"layer": "pooled"}}, False),
    ],
)
def test_references_may_differ_in_tuning(changed, compared):
    """Compares runs alike in all but the method, what is tuned and how it is computed."""
    mine, hard, dense = run_of("mine", **changed), run_of("hard", method="hard"), run_of("dense", method="dense")
    references = PRESENTATION.references([mine, hard, dense])
    assert references["hard"] is None
    assert (references["mine"] is hard) == compared
    assert (PRESENTATION.references([mine, hard, dense], "dense")["mine"] is dense) == compared


def test_reference_prefers_same_optimizer():
    other = {"learning_rate": 0.5, "name": "sgd"}
    runs = [run_of("hard", method="hard", optimizer=other), run_of("hard2", method="hard"), run_of("mine")]
    assert PRESENTATION.references(runs)["mine"].name == "hard2"
    assert PRESENTATION.references([runs[0], runs[2]])["mine"].name == "hard"


def test_why_not_shown_names_the_cause():
    assert PRESENTATION.why_not_shown(run_of("a")) == ""
    assert "'gone'" in PRESENTATION.why_not_shown(run_of("a", method="gone"))
    assert "a run of toy" in PRESENTATION.why_not_shown(
        dataclasses.replace(run_of("a"), environment={"experiment": "other"})
    )
    strict = dataclasses.replace(PRESENTATION, method=lambda fields: f"{fields['size'] + 1}")
    assert "'size'" in strict.why_not_shown(run_of("a"))
    assert "TypeError" in strict.why_not_shown(run_of("a", size="large"))


def test_pooled_joins_runs_of_other_seeds():
    runs = [run_of("a", (0, 1), (1.0, 3.0)), run_of("b", (2,), (5.0,)), run_of("c", (2,), (7.0,), steps=200)]
    one, other = pooled(runs)
    assert (one.name, one.summary["seeds"], one.final("error")) == ("a, b", [0, 1, 2], [1.0, 3.0, 5.0])
    assert other is runs[2]
    assert pooled([runs[0], runs[0]]) == [runs[0], runs[0]]  # a repetition


def test_pooled_joins_rows_seed_by_seed():
    of_a = [{"step": step, "seconds": 1.0 * step, "router": {"load": [0.1, None]}} for step in (5, 10)]
    of_b = [{"step": step, "seconds": 2.0 * step, "router": {"load": [0.3]}, "extra": [1]} for step in (5, 10)]
    runs = [run_of("a", (0, 1), (1.0, 3.0)), run_of("b", (2,), (5.0,))]
    (joined,) = pooled(dataclasses.replace(run, rows=rows) for run, rows in zip(runs, (of_a, of_b), strict=True))
    assert joined.rows == [{"step": s, "seconds": None, "router": {"load": [0.1, None, 0.3]}} for s in (5, 10)]


def test_values_as_people_write_them():
    assert shown("rescaled", "debias", value=True) == "rescaled"
    assert shown("lam", "lam.start", 1e-4) == "lam = 1e-4"
    assert shown("schedule", "lam.schedule", "geometric") == "schedule geometric"
    assert written("prune_layers", (1, 2)) == "(1, 2)"
    assert written("p", 4 / 3) == "4/3"
    assert written("x", -2.0) == "-2"
