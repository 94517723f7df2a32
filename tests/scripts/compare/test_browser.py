"""The page in a browser, on a desk and on a phone: no error, no request, and its controls do what they say."""

import csv
import html
import json
import re
import struct

import pytest
from axe_playwright_python.sync_playwright import Axe

from experiments.core.record.workdir import Workdir
from experiments.core.report.frame import difference
from experiments.core.report.results import load
from scripts.compare.__main__ import main
from scripts.compare.workdirs import RESULTS
from tests.scripts.browser import chromium, watched
from tests.scripts.workdirs import write_fine_tuning, write_workdir

START = [90.0, 88.0, 89.0]
READY = "#plot svg"
RANGES = "['x', 'y'].flatMap((side) => chart.scale(side).domain)"
MOST_PIXELS = 3000  # of the height of a page before one has opened more of it


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four pruning runs, one of which is unfinished, one of another experiment, and a workdir that is broken."""
    directory = tmp_path_factory.mktemp("runs")
    late = [[20.0 - i, 19.0 - i, 18.0 - i] for i in range(8)]
    write_workdir(directory / "a", [START, *late, [7.0, 8.0, 6.0]], method="hard")
    write_workdir(directory / "b", [START, *late, [5.0, 6.5, 4.0]], lam__start=0.1)
    write_workdir(directory / "c", [START, *late, [9.0, None, 8.5]], lam__start=1.0)
    write_workdir(
        directory / "d<b>", [START, *late, [3.0, 3.0, 3.0]], lam__start=0.3, dataset="<script>oops()</script>"
    )
    Workdir(directory / "d<b>").summary.unlink()
    write_fine_tuning(directory / "e", {1: [20.0, 21.0], 5: [40.0, 41.0], 10: [50.0, 51.0]})
    (directory / "f").mkdir()
    (directory / "f" / "summary.json").write_text(json.dumps({}))
    return directory


@pytest.fixture(scope="module")
def path(runs, tmp_path_factory):
    """The page of the runs."""
    out = tmp_path_factory.mktemp("page")
    assert main([str(runs), f"--out={out}"]) == 0
    return out / "index.html"


@pytest.fixture
def page(browser, path):
    with watched(browser, path, ready=READY) as page:
        yield page


def lines(page):
    """The curves that are drawn, without their bands: name and values."""
    return page.evaluate(
        "drawn.map(({ label, points }) => [label, points.map(({ x }) => x), points.map(({ y }) => y)])"
    )


def column(page, name, table="#finals-table"):
    index = page.locator(f"{table} thead th").all_inner_texts().index(name)
    return [row.locator("th, td").nth(index).inner_text() for row in page.locator(f"{table} tbody tr").all()]


def group_id(page, run):
    """The id of the group that has the run."""
    return page.evaluate("(name) => DATA.groups.find((group) => group.about.run === name).id", run)


def test_controls_choose_the_drawn_curves(page):
    names = [name for name, _, _ in lines(page)]
    assert len(names) == 4
    assert any("dataset <script>oops()</script>" in name for name in names)
    box = f"#show-{group_id(page, 'b')}"
    page.click(box)
    assert len(lines(page)) == len(column(page, "runs")) == 3
    page.press(box, "Space")  # still focused after the list was drawn again
    assert len(lines(page)) == 4
    page.click("#hide-all")
    assert lines(page) == []
    page.fill("#filter", "lam = 0.1")
    page.click("#show-all")
    assert len(lines(page)) == 1
    page.click("#show-usual")
    page.select_option("#axis", "seconds")
    assert lines(page)[0][1][:3] == [0, 2, 4]
    page.select_option("#metric", "train_loss")
    assert lines(page)[0][2][1] == pytest.approx(19 / 50, rel=1e-4)
    page.check("#log-y")
    assert page.evaluate("chart.scale('y').type") == "log"
    assert page.inner_text("#problems summary") == "Left out (1)"


def test_the_mouse_shows_values_and_zooms(page):
    x, y = page.evaluate("['x', 'y'].map((side) => chart.scale(side).apply(drawn[0].points.at(-1)[side]))")
    box = page.locator("#plot").bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    assert "7.0 ± 2.5" in page.text_content("#plot [aria-label=tip]")
    whole = page.evaluate(RANGES)
    page.mouse.down()
    page.mouse.move(box["x"] + x - 100, box["y"] + y - 100)
    page.mouse.up()
    x0, x1, y0, y1 = page.evaluate(RANGES)
    assert whole[0] < x0 < x1 <= whole[1]
    assert whole[2] < y0 < y1 < whole[3]
    page.click("#curves-reset")
    assert page.evaluate(RANGES) == whole


def test_differences_match_python(page, runs):
    found = {run.name: run for run in load(runs)[0]}
    ids = {name: group_id(page, name) for name in "abc"}
    assert page.input_value("#reference") == "each"  # the baseline that the experiment names, here a
    for reference in ("each", ids["a"]):
        page.select_option("#reference", reference)
        columns = [column(page, name) for name in ("runs", "difference", "pairs")]
        rows = {name: cells for name, *cells in zip(*columns, strict=True)}
        for name, label in (("b", "lam = 0.1"), ("c", "lam = 1")):
            expected = difference(found[name], found["a"], "test_error")
            minus, pairs = next(cells for text, cells in rows.items() if text.endswith(label))
            mean, half = map(float, minus.split(" ± "))
            assert mean == pytest.approx(expected["mean"], abs=0.06)
            assert half == pytest.approx(expected["interval95"], rel=0.1)
            assert pairs == str(sum(one is not None for one in expected["per_seed"]))
        assert rows["hard top-k"] == ["-", "-"]
        assert next(cells for text, cells in rows.items() if "unfinished" in text) == ["-", "-"]
    page.select_option("#experiment", "cifar100_vit")  # it has metrics of its own
    assert column(page, "mean_topk_error") == ["62.8 ± 6.4"]


def test_fields_table_shows_differences(page):
    for name in ("c", "d<b>"):
        page.uncheck(f"#show-{group_id(page, name)}")
    fields = column(page, "field", "#fields-table")
    cells = [row.locator("td").all_inner_texts() for row in page.locator("#fields-table tbody tr").all()]
    found = dict(zip(fields, cells, strict=True))
    assert found["run"] == ["a", "b"]
    assert found["method"] == ["hard", "relaxed"]
    assert found["lam.start"] == ["not used", "0.1"]
    assert "dataset" not in found
    page.click("#show-all")
    assert "<script>oops()</script>" in page.inner_text("#fields-table")


def test_tables_are_saved_as_csv(page):
    with page.expect_download() as download:
        page.click("#finals-csv")
    assert download.value.suggested_filename == "finals.csv"
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    hard = next(row for row in rows if row["runs"] == "hard top-k")
    assert float(hard["test_error"]) == 7
    assert float(hard["test_error, half width of the 95 % interval"]) == pytest.approx(2.4841, abs=1e-3)
    assert page.locator("#fields-csv").count() == 1


def test_saved_plots_name_their_curves(page):
    def saved(kind):
        with page.expect_download() as download:
            page.click(f"#curves-{kind}")
        return download.value.path().read_bytes()

    svg = saved("svg").decode()
    names = re.findall(r'<text class="name"[^>]*>(.*?)</text>', svg)
    assert [html.unescape(name) for name in names] == [name for name, _, _ in lines(page)]
    width, height = struct.unpack(">II", saved("png")[16:24])  # of the header of a PNG
    assert (width, height) == (2200, 2 * int(re.search(r' height="(\d+)"', svg)[1]))


def test_columns_sort_by_mouse_and_keyboard(page):
    page.click("#finals-table th button:text-is('test_error')")
    ascending = column(page, "test_error")
    assert ascending == sorted(ascending, key=lambda cell: float(cell.split()[0]))
    assert page.evaluate("document.activeElement.textContent") == "test_error"
    page.keyboard.press("Enter")
    assert column(page, "test_error") == ascending[::-1]
    assert page.locator("#finals-table th[aria-sort=descending]").inner_text() == "test_error"


def test_address_restores_the_choices(browser, path, page):
    assert page.evaluate("location.hash") == ""  # nobody has chosen anything
    page.select_option("#metric", "train_loss")
    page.select_option("#axis", "epoch")
    page.check("#log-y")
    page.uncheck(f"#show-{group_id(page, 'c')}")
    page.select_option("#reference", group_id(page, "b"))
    page.click("#finals-table th button:text-is('train_loss')")
    page.click("#curves-in")
    names, ranges, order = [name for name, _, _ in lines(page)], page.evaluate(RANGES), column(page, "runs")
    fragment = page.evaluate("location.hash")
    with watched(browser, path, ready=READY, fragment=fragment) as page:
        assert [name for name, _, _ in lines(page)] == names
        assert len(names) == 3
        assert page.evaluate(RANGES) == pytest.approx(ranges, rel=1e-3)
        assert [page.input_value(f"#{name}") for name in ("metric", "axis")] == ["train_loss", "epoch"]
        assert page.input_value("#reference") == group_id(page, "b")
        assert page.is_checked("#log-y")
        assert column(page, "runs") == order
        assert page.evaluate("location.hash") == fragment


def test_page_opens_short_and_accessible(browser, tmp_path):
    """That of the committed pruning runs and one that is not among them."""
    write_workdir(tmp_path / "mine", [[90.0] * 3, [7.0, 8.0, 6.0]], variant="hard")
    assert main([str(RESULTS / "mnist_pruning"), str(tmp_path / "mine"), f"--out={tmp_path}"]) == 0
    for width, scheme in ((1280, "light"), (390, "dark")):
        with watched(browser, tmp_path / "index.html", width=width, scheme=scheme, ready=READY) as page:
            assert 1 < len(lines(page)) <= 8
            assert page.locator("#finals-table tr.own").count() == page.locator("#list .badge").count() == 1
            assert page.evaluate("document.documentElement.scrollHeight") < MOST_PIXELS
            assert page.evaluate("document.documentElement.scrollWidth") == width
            violations = Axe().run(page).response["violations"]
            assert [(violation["id"], violation["nodes"][0]["html"]) for violation in violations] == []
