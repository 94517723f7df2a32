"""The tables of the page: their columns, their order, their numbers, and what they are saved as."""

import csv

import pytest

from experiments.core.report.paired import difference, significance
from experiments.core.report.results import load
from tests.scripts.compare.looking import column, group_id


def test_columns_sort_both_ways_and_by_keyboard(page):
    sort = page.locator("#finals-table th button", has_text="test_error")
    sort.click()
    ascending = column(page, "test_error")
    assert ascending == sorted(ascending, key=lambda cell: float(cell.split()[0]))
    assert page.locator("#finals-table th[aria-sort=ascending]").inner_text() == "test_error"
    assert page.evaluate("document.activeElement.textContent") == "test_error"
    page.keyboard.press("Enter")
    assert column(page, "test_error") == ascending[::-1]
    assert page.inner_text("#status") == "Sorted by test_error, descending"


def test_differences_are_those_that_python_finds(page, runs):
    found, _ = load(runs)
    hard, relaxed, lost = found[:3]
    page.select_option("#reference", group_id(page, "a"))
    names, shown = column(page, "runs"), column(page, "difference")
    by_name = dict(
        zip(names, zip(shown, column(page, "significance"), column(page, "pairs"), strict=True), strict=True)
    )

    def of(text):
        return next(cells for name, cells in by_name.items() if text in name)

    for run, text in ((relaxed, "lam = 0.1"), (lost, "lam = 1,")):
        expected, (minus, p, pairs) = difference(run, hard, "test_error"), of(text)
        mean, half = map(float, minus.split(" ± "))
        assert mean == pytest.approx(expected["mean"], abs=0.06)
        assert half == pytest.approx(expected["interval95"], rel=0.1)
        assert p == next(
            (f"p < {level}" for level in (0.001, 0.01, 0.05) if significance(run, hard, "test_error") < level),
            "p > 0.05",
        )
        assert pairs == str(sum(value is not None for value in expected["per_seed"]))
    assert of("hard top-k")[:2] == ("-", "-")
    assert of("failed")[0] == "-"


def test_the_reference_is_at_first_a_group_that_is_shown(page):
    first, second = group_id(page, "a"), group_id(page, "b")
    page.uncheck("#show-0")
    page.select_option("#experiment", "cifar100_vit")
    page.select_option("#experiment", "mnist_pruning")
    assert page.input_value("#reference") == second
    page.select_option("#reference", first)  # as asked for, shown or not
    page.select_option("#difference-metric", "train_loss")
    assert page.input_value("#reference") == first


def test_as_many_configs_as_wanted_differ_in_what_differs(page):
    heads = page.locator("#configs-table thead th")
    assert heads.count() == 3
    fields = column(page, "field", "#configs-table")
    assert {"method", "p", "lam.start"} <= set(fields)
    cells = [row.locator("td").all_inner_texts() for row in page.locator("#configs-table tbody tr").all()]
    found = dict(zip(fields, cells, strict=True))
    assert found["method"] == ["hard", "relaxed"]
    assert found["lam.start"] == ["not used", "0.1"]
    page.select_option("#add-config", group_id(page, "c"))
    cells = [row.locator("td").all_inner_texts() for row in page.locator("#configs-table tbody tr").all()]
    assert ["not used", "0.1", "1"] in cells
    page.check("#equal")
    assert "optimizer.learning_rate" in column(page, "field", "#configs-table")
    page.uncheck("#equal")
    page.click(f"#remove-config-{group_id(page, 'a')}")
    assert column(page, "field", "#configs-table") == ["lam.start"]
    page.click(f"#remove-config-{group_id(page, 'b')}")
    assert page.inner_text("#configs-table tbody") == "No field differs."


def test_the_reference_is_at_first_the_baseline_of_the_experiment(page):
    hard, other = group_id(page, "a"), group_id(page, "c")
    baselines = page.evaluate("groupsHere().map((group) => group.baseline)")
    assert baselines == [None, hard, hard, None]  # the last is of another data set
    page.evaluate(
        """(other) => {
          for (const group of groupsHere()) group.baseline = other;
          byId("reference").replaceChildren();
          experimentChanged();
        }""",
        other,
    )
    assert page.input_value("#reference") == other
    page.evaluate("(all) => groupsHere().forEach((group, i) => { group.baseline = all[i]; })", baselines)


def test_marks_beside_a_label_are_no_part_of_it_where_it_is_saved(page):
    page.evaluate("DATA.groups[0].own = true; drawFinals()")
    assert "not in results/" in page.locator("#finals-table tbody").inner_text()
    for kind in ("csv", "markdown"):
        with page.expect_download() as download:
            page.click(f"#finals-{kind}")
        saved = download.value.path().read_text()
        assert "hard top-k" in saved
        assert "not in results/" not in saved
    page.evaluate("DATA.groups[0].own = false")


def test_columns_are_chosen_and_the_first_stays_in_sight(page):
    heads = page.locator("#finals-table thead th")
    assert "hardened_density" not in heads.all_inner_texts()[:3]
    page.click("#finals-tools summary")
    page.check("[id='finals-column-lam.start']")
    page.uncheck("#finals-column-seeds")
    assert sorted(column(page, "lam.start")) == ["-", "0.1", "1", "1e-4"]
    assert "seeds" not in heads.all_inner_texts()
    assert page.evaluate("document.activeElement.id") == "finals-column-seeds"
    page.evaluate("document.querySelector('#finals .scroll').style.width = '30rem'")
    page.evaluate("document.querySelector('#finals .scroll').scrollLeft = 300")
    left = page.locator("#finals .scroll").bounding_box()["x"]
    assert page.locator("#finals-table tbody th").first.bounding_box()["x"] == pytest.approx(left)
    page.evaluate("document.querySelector('#finals .scroll').style.width = ''")


def test_every_table_is_saved_as_csv_and_as_markdown_and_copied(page):
    for name in ("finals", "configs", "runs", "problems"):
        assert page.locator(f"#{name}-csv").count() == 1
    with page.expect_download() as download:
        page.click("#finals-csv")
    assert download.value.suggested_filename == "finals.csv"
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    hard = next(row for row in rows if row["runs"].startswith("hard top-k"))
    assert float(hard["test_error"]) == 7
    assert float(hard["test_error, half width of the 95 % interval"]) == pytest.approx(2.4841, abs=1e-3)
    with page.expect_download() as download:
        page.click("#finals-markdown")
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("| runs | test_error | difference |")
    assert lines[1].startswith("| --- | ---: | ---: |")
    assert any(line.startswith("| hard top-k") and "| 7.0 ± 2.5 |" in line for line in lines)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#finals-copy")
    page.get_by_text("The table is copied").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()").splitlines() == lines


def test_states_and_what_was_left_out_are_shown(page):
    states = dict(zip(column(page, "run", "#runs-table"), column(page, "state", "#runs-table"), strict=True))
    assert states == {"a": "done", "b": "done", "c": "done", "d<b>": "failed at epoch 9 of 9", "e": "done"}
    errors = dict(zip(column(page, "run", "#runs-table"), column(page, "last error", "#runs-table"), strict=True))
    assert errors == {"a": "-", "b": "-", "c": "-", "d<b>": "ValueError: <no memory>", "e": "-"}
    assert column(page, "reason", "#problems-table") == ["config.json is missing"]
