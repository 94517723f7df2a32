"""The table of the fine-tuning experiment: its numbers, by hand, and what it says of what it leaves out."""

import json

import pytest

from experiments.cifar100_vit.report import table
from tests.scripts.workdirs import write_fine_tuning, write_workdir

XENT = {1: [40.0, 42.0, 47.0], 3: [60.0, 61.0, 62.0], 5: [70.0, 70.0, 70.0], 10: [80.0, 81.0, 82.0]}
TOPK = {1: [37.0, 38.0, 36.0], 3: [61.0, 63.0, 65.0], 5: [71.0, 72.0, 73.0], 10: [82.0, 82.0, 82.0]}


def numbers_of(directory):
    table.make(directory)
    return json.loads((directory / "table.json").read_text())


def rows_by_run(directory):
    numbers = numbers_of(directory)
    return {row["run"]: row for row in numbers["final"] + numbers["sweep"]}


def text_of(directory):
    return (directory / "table.md").read_text()


def test_intervals_and_paired_differences_are_those_computed_by_hand(tmp_path):
    write_fine_tuning(tmp_path / "final-xent", XENT, "small,loss=xent")
    write_fine_tuning(tmp_path / "final-topk", TOPK, optimizer__learning_rate=0.03)
    rows = rows_by_run(tmp_path)
    topk = rows["final-topk"]
    # t(0.975, 2 degrees) = 4.302653; the standard deviation of (37, 38, 36) is 1.
    assert topk["accuracy"]["1"]["mean"] == pytest.approx(37.0)
    assert topk["accuracy"]["1"]["interval95"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    # The differences are -3, -4, -11: mean -6, variance (9 + 4 + 25) / 2 = 19. Those of top-3 are 1, 2, 3.
    assert topk["minus_cross_entropy"]["1"]["mean"] == pytest.approx(-6.0)
    assert topk["minus_cross_entropy"]["1"]["interval95"] == pytest.approx(4.302653 * (19 / 3) ** 0.5, rel=1e-6)
    assert topk["minus_cross_entropy"]["3"]["per_seed"] == [1.0, 2.0, 3.0]
    assert set(rows["final-xent"]["minus_cross_entropy"].values()) == {None}
    # (37 + 61 + 71 + 82) / 4 and so on.
    assert topk["mean_topk_accuracy"]["per_seed"] == pytest.approx([62.75, 63.75, 64.0])
    assert topk["seconds_per_step_and_seed"] == pytest.approx(1 / 3)
    cells = (
        "| 37.00 ± 2.48 | 63.00 ± 4.97 | 72.00 ± 2.48 | 82.00 ± 0.00 | -6.00 ± 10.83 | +2.00 ± 2.48 | +2.00 ± 2.48 |"
    )
    assert f"| top-3, p = 2, the paper's | learning rate 0.03, lam = 0.1 {cells} 63.50 ± " in text_of(tmp_path)
    assert "| cross-entropy | learning rate 3e-3 | 43.00 ± 8.96 | " in text_of(tmp_path)


def test_pairs_are_by_seed(tmp_path):
    write_fine_tuning(tmp_path / "xent", {1: [10.0, 20.0, 30.0]}, "small,loss=xent", seeds=(2, 1, 0))
    write_fine_tuning(tmp_path / "topk", {1: [29.0, 18.0, 50.0]}, seeds=(0, 1, 7))
    assert rows_by_run(tmp_path)["topk"]["minus_cross_entropy"]["1"]["per_seed"] == [-1.0, -2.0, None]


def test_runs_of_one_seed_each_are_one_run_of_many(tmp_path):
    """As at full size, where every seed trains alone."""
    for seed in range(3):
        one = {k: [values[seed]] for k, values in XENT.items()}
        write_fine_tuning(tmp_path / f"xent{seed}", one, "loss=xent", seeds=(seed,), mesh__fsdp=1 + seed)
        one = {k: [values[seed]] for k, values in TOPK.items()}
        write_fine_tuning(tmp_path / f"topk{seed}", one, "", seeds=(seed,))
    rows = rows_by_run(tmp_path)
    assert list(rows) == ["xent0, xent1, xent2", "topk0, topk1, topk2"]
    topk = rows["topk0, topk1, topk2"]
    assert (topk["seeds"], topk["diverged"]) == ([0, 1, 2], 0)
    assert topk["minus_cross_entropy"]["1"]["per_seed"] == [-3.0, -4.0, -11.0]
    assert topk["accuracy"]["1"]["interval95"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert topk["seconds_per_step_and_seed"] == pytest.approx(1.0)
    # A repetition is not another seed.
    write_fine_tuning(tmp_path / "again", {k: [values[0]] for k, values in TOPK.items()}, "", seeds=(0,))
    assert {"again", "topk0", "topk1", "topk2"} < set(rows_by_run(tmp_path))


def test_a_rate_of_its_own_that_is_the_papers_is_no_repetition(tmp_path):
    for block in ("paper", "final"):
        for seed in range(3):
            for loss, accuracies in (("xent", XENT), ("topk", TOPK)):
                one = {k: [values[seed]] for k, values in accuracies.items()}
                variant = f"loss={loss}" if loss == "xent" else ""
                write_fine_tuning(tmp_path / block / f"{loss}-seed{seed}", one, variant, seeds=(seed,))
    numbers = numbers_of(tmp_path)
    for rows in (numbers["final_at_paper_rates"], numbers["final"]):
        assert [row["seeds"] for row in rows] == [[0, 1, 2]] * 2
        assert rows[1]["minus_cross_entropy"]["1"]["per_seed"] == [-3.0, -4.0, -11.0]


def test_times_are_those_of_runs_on_the_same_processors(tmp_path):
    for name, loss, cores in (("xent", "loss=xent", 1), ("topk", "p=2", 1), ("alone", "p=4/3", 2)):
        write_fine_tuning(tmp_path / name, XENT, f"small,{loss}")
        machine = {"machine": {"cores": cores}, "devices": {"count": 1}}
        path = tmp_path / name / "environment.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | machine | {"resumed": [machine]}))
    rows = rows_by_run(tmp_path)
    times = {name: row["seconds_per_step_and_seed"] for name, row in rows.items()}
    assert times == {"xent": pytest.approx(1 / 3), "topk": pytest.approx(1 / 3), "alone": None}
    (alone,) = [line for line in text_of(tmp_path).splitlines() if line.startswith("| top-3, p = 4/3")]
    assert alone.endswith(" | - | 3 | 0 |")


def test_times_of_single_seeds_are_those_of_runs_on_the_same_processors_too(tmp_path):
    cores = {"xent": (1, 1), "topk": (1, 1), "alone": (2, 2), "mixed": (1, 2)}
    forms = {"xent": "loss=xent", "topk": "p=2", "alone": "p=4/3", "mixed": "p=3/2"}
    for name, variant in forms.items():
        for seed in range(2):
            one = {k: [values[seed]] for k, values in XENT.items()}
            path = tmp_path / f"{name}{seed}"
            write_fine_tuning(path, one, variant, seeds=(seed,))
            path = path / "environment.json"
            machine = {"machine": {"cores": cores[name][seed]}, "devices": {"count": 1}}
            path.write_text(json.dumps(json.loads(path.read_text()) | machine))
    # All seeds of one in one program.
    write_fine_tuning(tmp_path / "whole", XENT, "p=5/4")
    path = tmp_path / "whole" / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": {"cores": 1}, "devices": {"count": 1}}))
    rows = rows_by_run(tmp_path)
    times = {name: row["seconds_per_step_and_seed"] for name, row in rows.items()}
    assert times == {
        "xent0, xent1": pytest.approx(1.0),
        "topk0, topk1": pytest.approx(1.0),
        "alone0, alone1": None,
        "mixed0, mixed1": None,
        "whole": pytest.approx(1 / 3),
    }


def test_diverged_seeds_leave_the_means_and_are_counted(tmp_path):
    write_fine_tuning(tmp_path / "xent", {1: [10.0, 20.0, None], 3: [11.0, 21.0, None]}, "small,loss=xent")
    write_fine_tuning(tmp_path / "topk", {1: [None, 15.0, 16.0], 3: [None, 17.0, 18.0]})
    write_fine_tuning(tmp_path / "lost", {1: [None] * 3, 3: [None] * 3}, "small,target=smooth")
    rows = rows_by_run(tmp_path)
    assert rows["topk"]["accuracy"]["1"]["mean"] == pytest.approx(15.5)
    assert rows["topk"]["minus_cross_entropy"]["1"]["per_seed"] == [None, -5.0, None]
    assert (rows["topk"]["diverged"], rows["lost"]["diverged"]) == (1, 3)
    assert rows["lost"]["mean_topk_accuracy"]["mean"] is None
    assert "smooth target | learning rate 5e-3, lam = 0.1 | - | - | - | - | - | - | - | - | " in text_of(tmp_path)


def test_losses_are_named_and_in_order(tmp_path):
    forms = {
        "d": ("small,loss=topk_mixture,target=smooth", {"loss__k": 5}),
        "c": ("small,p=4/3,target=smooth", {"loss__lam": 1.0}),
        "b": ("small,p=4/3", {}),
        "a2": ("small,p=3/2", {}),
        "a": ("small", {}),
        "xent": ("small,loss=xent", {}),
    }
    for name, (variant, fields) in forms.items():
        write_fine_tuning(tmp_path / name, XENT, variant, **fields)
    assert [(row["run"], row["loss"]) for row in numbers_of(tmp_path)["final"]] == [
        ("xent", "cross-entropy"),
        ("a", "top-3, p = 2, the paper's"),
        ("a2", "top-3, p = 1.5, the paper's"),
        ("b", "top-3, p = 4/3, the paper's"),
        ("c", "top-3, p = 4/3, smooth target"),
        ("d", "mixture of top-1 to top-5, p = 2, smooth target"),
    ]


def test_a_stand_in_is_called_one_and_the_full_size_is_not(tmp_path):
    write_fine_tuning(tmp_path / "small" / "final", XENT)
    coarse = {1: [55.0], 3: [80.0], 5: [90.0]}
    write_fine_tuning(tmp_path / "small" / "pretrain", coarse, "pretrain", split="validation")
    write_fine_tuning(tmp_path / "full" / "final", XENT, "")
    numbers = numbers_of(tmp_path / "small")
    assert [row["run"] for row in numbers["final"]] == ["final"]
    assert numbers["sweep"] == []  # pretraining is no candidate
    assert (
        "A stand-in for ViT-B/16 with ImageNet-21k weights, which could not be obtained: 4 blocks of width 64, patches "
        in (text_of(tmp_path / "small"))
    )
    assert "for 10 epochs (55.00 % of them right on validation)." in text_of(tmp_path / "small")
    numbers_of(tmp_path / "full")
    assert "stand-in" not in text_of(tmp_path / "full")


def test_the_sweep_marks_what_was_chosen(tmp_path):
    for rate in (0.03, 0.1):
        write_fine_tuning(
            tmp_path / f"lr{rate:g}", {1: [5.0], 3: [7.0]}, split="validation", optimizer__learning_rate=rate
        )
    (tmp_path / "choices.json").write_text(json.dumps({"topk": {"chosen": "lr0.1"}, "xent": {"chosen": None}}))
    assert {name: row["chosen"] for name, row in rows_by_run(tmp_path).items()} == {"lr0.03": False, "lr0.1": True}
    assert "| learning rate 0.1, lam = 0.1 | 5.00 | 7.00 | - | - | 6.00 | 1.50 | 0 of 1 | chosen |" in text_of(tmp_path)
    assert "### Test" not in text_of(tmp_path)
    # One that won a first choice and lost the second is none that was chosen.
    rivals = {"candidates": [{"run": "lr0.03"}, {"run": "lr0.1"}]}
    choices = {"topk, rate": {"chosen": "lr0.1"}, "topk": {"chosen": "lr0.03"} | rivals}
    (tmp_path / "choices.json").write_text(json.dumps(choices))
    assert {name: row["chosen"] for name, row in rows_by_run(tmp_path).items()} == {"lr0.03": True, "lr0.1": False}


def test_runs_that_cannot_be_used_are_named(tmp_path):
    for name in ("sound", "unfinished"):
        write_fine_tuning(tmp_path / name, XENT)
    (tmp_path / "unfinished" / "summary.json").unlink()
    write_workdir(tmp_path / "other", [[90.0], [5.0]])
    assert [row["run"] for row in numbers_of(tmp_path)["final"]] == ["sound"]
    assert "- `unfinished`: unfinished: step 100 of 100\n" in text_of(tmp_path)
    assert "- `other`: not a run of the fine-tuning experiment" in text_of(tmp_path)


def test_a_directory_without_runs_and_one_that_is_not_there(tmp_path, capsys):
    assert table.main([str(tmp_path)]) == 0
    assert "No runs." in capsys.readouterr().out
    assert table.main([str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'nowhere'} is not a directory\n"


def test_runs_at_the_papers_rates_have_a_table_of_their_own_and_choices_at_an_edge_are_named(tmp_path):
    xent, topk = "features,loss=xent", "features,p=4/3"
    write_fine_tuning(tmp_path / "paper" / "xent", XENT, xent)
    write_fine_tuning(tmp_path / "paper" / "topk", TOPK, topk)
    write_fine_tuning(tmp_path / "final-xent", {1: [50.0, 50.0, 50.0]}, xent, optimizer__learning_rate=0.1)
    write_fine_tuning(tmp_path / "final-topk", {1: [49.0, 48.0, 50.0]}, topk, optimizer__learning_rate=0.01)
    choices = {}
    for name, variant, rates, best in (("xent", xent, (0.01, 0.1, 1.0), 0.1), ("topk", topk, (0.01, 0.1), 0.01)):
        for rate in rates:
            run = f"sweep/{name}-lr{rate:g}"
            fields = {"split": "validation", "optimizer__learning_rate": rate}
            write_fine_tuning(tmp_path / run, {1: [45.0]}, variant, **fields)
        choices[name] = {"chosen": f"sweep/{name}-lr{best:g}"}
    (tmp_path / "choices.json").write_text(json.dumps(choices))
    numbers = numbers_of(tmp_path)
    rows = {row["run"]: row for row in numbers["final_at_paper_rates"] + numbers["final"]}
    assert rows["paper/topk"]["minus_cross_entropy"]["3"]["per_seed"] == [1.0, 2.0, 3.0]
    assert rows["final-topk"]["minus_cross_entropy"]["1"]["per_seed"] == [-1.0, -2.0, 0.0]
    assert len(numbers["final_at_paper_rates"]) == len(numbers["final"]) == 2
    assert numbers["at_an_edge"] == ["sweep/topk-lr0.01"]
    text = text_of(tmp_path)
    paper = text.index("100 steps, at the paper's learning rates, %")
    own = text.index("100 steps, each loss at its own, %")
    assert paper < text.index("| cross-entropy | learning rate 3e-3 |") < own
    assert own < text.index("| cross-entropy | learning rate 0.1 |")
    assert text.count("a linear head on the features of EfficientNet-Lite0 (ImageNet-1k weights, 160 pixels)") == 1
    assert "At an edge of what was tried: `sweep/topk-lr0.01`." in text
    write_fine_tuning(tmp_path / "sweep/lower", {1: [1.0]}, topk, split="validation", optimizer__learning_rate=1e-3)
    assert numbers_of(tmp_path)["at_an_edge"] == []
    assert "None is at an edge of what was tried." in text_of(tmp_path)


def test_where_ranks_are_kept_differences_have_an_interval_over_images_too(tmp_path):
    """Of four images, by the ranks of their labels; the third seed of one of them has diverged and does not count."""
    write_fine_tuning(
        tmp_path / "xent", {1: [25.0, 50.0, 50.0]}, "loss=xent", ranks=[[0, 1, 2, 3], [0, 0, 5, 9], [0, 0, 9, 9]]
    )
    write_fine_tuning(
        tmp_path / "topk", {1: [75.0, 75.0, None]}, "", ranks=[[0, 0, 0, 2], [0, 0, 1, 0], [10, 10, 10, 10]]
    )
    row = rows_by_run(tmp_path)["topk"]["minus_cross_entropy"]["1"]
    assert row["per_seed"] == [50.0, 25.0, None]
    # By image (0 + 0) / 2, (1 + 0) / 2, (1 + 0) / 2 and (0 + 1) / 2, in percent: a standard deviation of 25.
    assert row["interval95_over_images"] == pytest.approx(1.959964 * 25 / 2)
    text = text_of(tmp_path)
    assert "| +37.50 ± 158.83 / 24.50 |" in text
    assert "after the stroke is the half width over test images, paired by image." in text
    # As at full size, where every seed trains alone.
    for name, ranks in {"xent": [[0, 1, 2, 3], [0, 0, 5, 9]], "topk": [[0, 0, 0, 2], [0, 0, 1, 0]]}.items():
        for seed in range(2):
            run = tmp_path / "full" / f"{name}-seed{seed}"
            write_fine_tuning(run, {1: [5.0 * seed]}, f"loss={name}", ranks=ranks[seed : seed + 1], seeds=(seed,))
    (found,) = (row for row in numbers_of(tmp_path / "full")["final"] if row["run"].startswith("topk"))
    assert found["minus_cross_entropy"]["1"]["interval95_over_images"] == pytest.approx(1.959964 * 25 / 2)


def test_runs_in_other_circumstances_have_tables_of_their_own(tmp_path):
    for steps, images in ((100, 0), (100, 10), (1000, 0)):
        for loss, top1 in (("xent", [50.0, 51.0]), ("topk", [49.0, 52.0])):
            fields = {"images_per_class": images, "optimizer__weight_decay": 0.1 if steps == 1000 else 0.0}
            name = f"{steps}-{images}/final-{loss}"
            write_fine_tuning(tmp_path / name, {1: top1}, f"features,loss={loss},steps={steps}", **fields)
    numbers = numbers_of(tmp_path)
    others = [[row["run"] for row in rows] for rows in numbers["final_in_other_circumstances"]]
    assert [row["run"] for row in numbers["final"]] == ["100-0/final-xent", "100-0/final-topk"]
    assert others == [[f"{which}/final-{loss}" for loss in ("xent", "topk")] for which in ("1000-0", "100-10")]
    assert numbers["final_in_other_circumstances"][0][1]["minus_cross_entropy"]["1"]["per_seed"] == [-1.0, 1.0]
    text = text_of(tmp_path)
    titles = ["after 100 steps, %", "after 1000 steps, %", "after 100 steps on 10 images of each class, %"]
    places = [text.index(f"### Test, cifar100: top-k accuracy {title}\n") for title in titles]
    assert places == sorted(places)
    assert "| cross-entropy | learning rate 3e-3, decay 0.1 | 50.50" in text


def test_cross_entropy_in_other_circumstances_is_none_to_be_held_against(tmp_path):
    """Of one length all, on as many images; `paper/` has a block of its own, in which lengths differ, too."""
    others = {
        "a": ("features", {}),
        "b": ("features", {"dataset": "cifar10"}),
        "c": ("last_block", {}),
        "paper/a": ("features", {}),
        "paper/long": ("features,steps=200", {}),
        "small": ("small", {}),
    }
    for name, (form, fields) in others.items():
        write_fine_tuning(tmp_path / f"{name}-topk", TOPK, form, **fields)
    alone = rows_by_run(tmp_path)
    write_fine_tuning(tmp_path / "a-xent", XENT, "features,loss=xent", optimizer__learning_rate=0.1)
    write_fine_tuning(tmp_path / "paper" / "a-xent", XENT, "features,loss=xent")
    numbers = numbers_of(tmp_path)
    rows = {row["run"]: row for row in numbers["final"] + numbers["final_at_paper_rates"]}
    assert len(rows) == len(alone) + 4 == 8
    held = [name for name, row in rows.items() if row["minus_cross_entropy"]["1"] is not None]
    assert sorted(held) == ["a-topk", "paper/a-topk"]
    assert rows["a-topk"]["minus_cross_entropy"]["1"]["per_seed"] == [-3.0, -4.0, -11.0]
    write_fine_tuning(tmp_path / "c-xent", XENT, "last_block,loss=xent")
    assert rows_by_run(tmp_path)["c-topk"]["minus_cross_entropy"]["1"]["per_seed"] == [-3.0, -4.0, -11.0]


def test_a_decay_that_is_the_greatest_tried_lies_at_an_edge_and_none_does_not(tmp_path):
    base = {"split": "validation", "optimizer__learning_rate": 0.1}
    for rate in (0.01, 1.0):
        fields = base | {"optimizer__learning_rate": rate}
        write_fine_tuning(tmp_path / f"lr{rate:g}", {1: [1.0]}, "features,loss=xent", **fields)
    for decay in (0.0, 0.1, 1.0):
        run = tmp_path / f"decay{decay:g}"
        write_fine_tuning(run, {1: [1.0]}, "features,loss=xent", optimizer__weight_decay=decay, **base)
    write_fine_tuning(tmp_path / "final", {1: [1.0]}, "features,loss=xent", optimizer__learning_rate=0.1)
    for decay, edges in ((0.0, []), (0.1, []), (1.0, ["decay1"])):
        (tmp_path / "choices.json").write_text(json.dumps({"xent": {"chosen": f"decay{decay:g}"}}))
        assert numbers_of(tmp_path)["at_an_edge"] == edges


@pytest.mark.parametrize(("lams", "edges"), [((1.0,), []), ((1.0, 10.0), ["lam1"]), ((0.1, 1.0, 10.0), [])])
def test_a_lam_that_is_the_least_of_several_lies_at_an_edge(tmp_path, lams, edges):
    for rate in (0.01, 0.1, 1.0):
        for lam in lams if rate == 0.1 else lams[:1]:
            run = tmp_path / (f"lam{lam:g}" if rate == 0.1 else f"lr{rate:g}")
            fields = {"split": "validation", "optimizer__learning_rate": rate, "loss__lam": lam}
            write_fine_tuning(run, {1: [1.0]}, "small,loss=topk", **fields)
    (tmp_path / "choices.json").write_text(json.dumps({"topk": {"chosen": "lam1"}}))
    assert numbers_of(tmp_path)["at_an_edge"] == edges


def test_with_the_last_block_it_is_said_what_is_trained(tmp_path):
    write_fine_tuning(tmp_path / "xent", XENT, "last_block,loss=xent")
    table.make(tmp_path)
    assert (
        "the last block of EfficientNet-Lite0 (ImageNet-1k weights, 160 pixels) and a linear head; what comes before "
        "them is not trained. Seeds"
    ) in text_of(tmp_path)
