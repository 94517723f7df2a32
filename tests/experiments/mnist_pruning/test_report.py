"""Tables, figures and findings of pruning runs unlike the committed ones, which scripts/report has a test of."""

import functools
import re

import numpy as np

from experiments.mnist_pruning import report
from experiments.mnist_pruning.report import PRESENTATION, sections
from tests.scripts.workdirs import answers, write_workdir

START = [90.0, 90.0, 90.0]
GOOD, BAD = [5.0, 6.0, 5.5], [30.0, 20.0, 25.0]
ANNEALED = {"lam__schedule": "geometric", "lam__start": 3.0, "debias": True}


def loaded(directory):
    runs, problems = PRESENTATION.load(directory)
    assert not problems
    return runs


def in_paper(directory):
    """The cells of the first table of tests, by run."""
    section = next(iter(sections(loaded(directory), "test").values()))
    return report.paper_rows(section, section).T


def test_means_exclude_diverged_seeds(tmp_path):
    write_workdir(tmp_path / "hard", [START, [10.0, 20.0, None]], method="hard")
    write_workdir(tmp_path / "ista", [START, [None, 15.0, 16.0]], method="ista")
    write_workdir(tmp_path / "dense", [START, [None, None, None]], method="dense")
    rows = in_paper(tmp_path)
    assert rows["ista"]["test error, %"].startswith("15.50 ± ")
    assert (rows["ista"]["minus hard"], rows["ista"]["diverged"]) == ("-5.00", "1")
    columns = ["test error, %", "minus hard", "hardened epochs to it", "diverged"]
    assert [rows["dense"][column] for column in columns] == ["-", "-", "in 0 of 3 seeds", "3"]


def test_figures_show_means_reproducibly(tmp_path):
    write_workdir(tmp_path / "hard", [START[:2], [30.0, 20.0], [None, 15.0]], method="hard")
    write_workdir(tmp_path / "annealed", [START[:2], [9.0, 8.0], [5.0, 6.0]], **ANNEALED)
    first = {path: path.read_bytes() for path in report.make(tmp_path)}
    assert {path.name: path.read_bytes() for path in report.make(tmp_path)} == {
        path.name: content for path, content in first.items()
    }
    axes = report.figures(loaded(tmp_path))["figure5-layers123"].axes
    assert [line.get_ydata().tolist() for line in axes[1].get_lines()[:2]] == [[90.0, 25.0, 15.0], [90.0, 8.5, 5.5]]
    np.testing.assert_allclose(axes[3].get_lines()[0].get_ydata(), [10.0, 10.0, 10.0])
    np.testing.assert_allclose(axes[0].get_lines()[0].get_xdata(), [0.0, 3.0, 6.0])


def test_method_without_look_keeps_its_name(tmp_path, monkeypatch):
    monkeypatch.delitem(report.LOOKS, "hard_concrete")
    write_workdir(tmp_path / "hard", [START, [10.0, 20.0, 15.0]], method="hard")
    write_workdir(tmp_path / "gates", [START, [9.0, 15.0, 16.0]], method="hard_concrete")
    runs = loaded(tmp_path)
    assert set(runs["called"]) == {"hard top-k", "hard concrete"}
    (legend,) = report.figures(runs)["figure5-layers123"].legends
    assert any(text.get_text().startswith("hard concrete: ") for text in legend.get_texts())


def pruned(results, *, papers, annealed, ot=GOOD):
    """Results in which hard top-k errs by 12 to 14 %, at the paper's rate and tuned."""
    directory, hard = results / "mnist_pruning", [START, [20.0, 21.0, 19.0], [12.0, 14.0, 13.0]]
    tuned = {"budget": "matrix", "optimizer__schedule": "cosine"}
    write_workdir(directory / "final-hard", hard, method="hard")
    write_workdir(directory / "best/matrix-hard-0.1", hard, method="hard", **tuned)
    write_workdir(directory / "final-papers", [START, papers, papers], p=4 / 3)
    for name, fields in {"final-annealed": {}, "best/matrix-annealed-0.1": tuned}.items():
        write_workdir(directory / name, [START, annealed, annealed], p=4 / 3, **ANNEALED, **fields)
    write_workdir(directory / "final-ot", [START, ot, ot], method="ot_straight_through")
    return results


def test_lost_seeds_are_no_success(tmp_path):
    lost = [None, None, None]
    results = pruned(tmp_path, papers=lost, annealed=lost, ot=lost)
    for find in (report.accuracy, functools.partial(report.optimal_transport, margin=2.0)):
        assert set(answers(find(results))) == {"not shown"}
    assert "holds" not in answers(report.speed(results))
    assert answers(report.density(results, margin=0.05)) == ("does not hold",) * 2


def test_each_pruning_claim_is_judged(tmp_path):
    results = pruned(tmp_path, papers=[14.5, 17.5, 16.0], annealed=GOOD)
    assert answers(report.accuracy(results)) == ("does not hold", "holds")
    assert [verdict.told for verdict in report.accuracy(results)[:2]] == [
        "lam = 1e-4: error 3.00 ± 1.24 higher",
        "both tuned, lam falls: error 7.50 ± 1.24 lower",
    ]
    assert answers(report.speed(results)) == ("does not hold", "holds")
    stated, tuned = report.speed(results)[:2]
    assert stated.told == "lam = 1e-4: never in 3 seeds; an epoch 1.0 times as long"
    assert tuned.told == "both tuned, lam falls: 1.00 ± 0.00 epochs sooner; an epoch 1.0 times as long"
    assert answers(report.density(results, margin=0.05)) == ("holds", "holds")
    assert answers(report.optimal_transport(results, margin=2.0)) == ("does not hold", "holds")


def test_resnet_runs_get_their_own_tables(tmp_path):
    write_workdir(tmp_path / "best/network-dense-0.02", [START, [32.0, 33.0, 32.5]], variant="dense,network=resnet")
    for kept, base in ((0.02, 50.0), (0.1, 36.0)):
        for name, variant, fields in (("gradual", "gradual", {}), ("annealed-p3_2", "annealed", {"p": 1.5})):
            errors = [START, [base, base + 1, base + 0.5]]
            path = tmp_path / f"best/network-{name}-{kept:g}"
            write_workdir(path, errors, variant=f"{variant},network=resnet", density=kept, **fields)
    runs = loaded(tmp_path)
    lines = report.tables(runs, frozenset())
    titles = [line for line in lines if line.startswith("### Test, cifar100-resnet20: ")]
    assert [re.search(r"(\d+) % of the whole network", title)[1] for title in titles] == ["10", "2"]
    assert any(line.startswith("| gradual magnitude pruning | ") and "+18.00 ± " in line for line in lines)
    assert list(report.figures(runs)) == ["error-against-density-cifar100-resnet20"]


def test_lenet_figure_uses_validation_winner(tmp_path):
    fields = {"hidden": (300, 100), "budget": "network", "density": 0.02}
    for name, p, tried, tested in (("p3_2", 1.5, 3.0, [2.5, 2.5, 2.6]), ("p4_3", 4 / 3, 4.0, [2.0, 2.1, 2.4])):
        annealed = fields | ANNEALED | {"p": p}
        write_workdir(tmp_path / f"sweep/best/{name}", [START, [tried] * 3], split="validation", **annealed)
        write_workdir(tmp_path / f"best/network-{name}", [START, tested], **annealed)
    write_workdir(tmp_path / "best/network-gradual", [START, [3.5, 3.4, 3.7]], variant="gradual", **fields)
    (axes,) = report.figures(loaded(tmp_path))["error-against-density-mnist-300-100"].axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "annealed relaxed top-k, p = 1.5" in names
    assert not any("4/3" in name for name in names)
    papers = next(line for line in axes.get_lines() if line.get_marker() == "x")
    assert sorted(papers.get_ydata()) == [1.59, 1.92, 1.94, 1.99]
