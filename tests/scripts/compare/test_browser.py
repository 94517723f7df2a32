"""The page in a browser: it opens without errors and without a network, and its controls do what they say.

Whoever reads it, on whatever: contrast, names, keyboard, phones, and how long the page is.
"""

import csv
import html
import re
import struct

import pytest
from axe_playwright_python.sync_playwright import Axe

from experiments.core.report.paired import difference
from experiments.core.report.results import load
from scripts.compare.__main__ import main
from scripts.compare.workdirs import RESULTS
from tests.scripts.browser import watched
from tests.scripts.workdirs import write_workdir

START = [90.0, 88.0, 89.0]
RANGES = "['xaxis', 'yaxis'].flatMap((axis) => byId('plot')._fullLayout[axis].range)"
# By the formula of the Web Content Accessibility Guidelines, the worst of some colours on both backgrounds.
CONTRASTS = """(() => {
  const channel = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (hex) => [1, 3, 5].map((i) => channel(parseInt(hex.slice(i, i + 2), 16) / 255))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0.05);
  const ratio = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
  const grounds = ["--background", "--raised"].map(style);
  const worst = (colours) => Math.min(...colours.flatMap((one) => grounds.map((ground) => ratio(one, ground))));
  const theme = system.matches ? "dark" : "light";
  return { theme, text: worst(["--text", "--faint", "--accent"].map(style)), curves: worst(PALETTES[theme]),
    controls: worst([style("--control")]) };
})()"""
MOST_PIXELS = 3000  # of the height of a page before one has opened more of it


def lines(page):
    """The curves that are drawn, without their bands: name and values."""
    return page.evaluate(
        "byId('plot').data.filter((trace) => !trace.fill).map((trace) => [trace.name, trace.x, trace.y])"
    )


def column(page, name, table="#finals-table"):
    index = page.locator(f"{table} thead th").all_inner_texts().index(name)
    return [row.locator("th, td").nth(index).inner_text() for row in page.locator(f"{table} tbody tr").all()]


def group_id(page, run):
    """The id of the group that has the run."""
    return page.evaluate("(name) => DATA.groups.find((group) => group.about.run === name).id", run)


def test_curves_are_hidden_and_shown_by_mouse_and_keyboard(page):
    names = [name for name, _, _ in lines(page)]
    assert len(names) == 4
    assert any("dataset &lt;script&gt;oops()&lt;/script&gt;" in name for name in names)
    box = f"#show-{group_id(page, 'b')}"
    page.click(box)
    assert len(lines(page)) == len(column(page, "runs")) == 3
    page.press(box, "Space")  # still focused after the list was drawn again
    assert len(lines(page)) == 4
    page.click("#hide-all")
    assert lines(page) == []
    page.fill("#filter", "lam = 0.1")
    assert page.locator("#list input").count() == 1
    page.click("#show-all")
    assert len(lines(page)) == 1
    page.click("#show-usual")
    assert len(lines(page)) == 4


def test_axes_metric_logarithms_and_intervals(page):
    page.select_option("#axis", "seconds")
    assert lines(page)[0][1][:3] == [0, 2, 4]
    page.select_option("#metric", "train_loss")
    assert lines(page)[0][2][1] == pytest.approx(19 / 50, rel=1e-4)
    page.check("#log-y")
    assert page.evaluate("byId('plot')._fullLayout.yaxis.type") == "log"
    bands = "byId('plot').data.filter((trace) => trace.fill).length"
    assert page.evaluate(bands) == 4
    page.uncheck("#bands")
    assert page.evaluate(bands) == 0


def test_zoom_by_keyboard(page):
    """By mouse it is plotly's."""
    low, high, *_ = page.evaluate(RANGES)
    page.locator("#curves-in").press("Enter")
    near = page.evaluate(RANGES)
    assert near[1] - near[0] == pytest.approx((high - low) / 2, rel=1e-4)
    page.click("#curves-reset")
    assert page.evaluate(RANGES)[:2] == pytest.approx([low, high])


def test_hovering_names_the_value_and_its_interval(page):
    page.click("#hide-all")
    page.check(f"#show-{group_id(page, 'a')}")
    box = page.locator("#plot .nsewdrag").first.bounding_box()
    x, y = page.evaluate("(({ xaxis, yaxis }) => [xaxis.d2p(50), yaxis.d2p(15)])(byId('plot')._fullLayout)")
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector("#plot .hovertext")
    text = page.locator("#plot .hovertext").first.text_content()
    assert "15.0 ± 2.5" in text
    assert "step 50" in text


def test_plots_are_saved_with_the_names_of_what_they_show(page):
    def saved(kind):
        with page.expect_download() as download:
            page.click(f"#curves-{kind}")
        return download.value.path().read_bytes()

    svg = saved("svg").decode()
    names = re.findall(r'<text class="legendtext"[^>]*>(.*?)</text>', svg)
    assert [html.unescape(name) for name in names] == [html.unescape(name) for name, _, _ in lines(page)]
    width, height = struct.unpack(">II", saved("png")[16:24])  # of the header of a PNG
    assert (width, height) == (2200, 2 * int(re.search(r' height="(\d+)"', svg)[1]))
    assert page.evaluate("byId('plot')._fullLayout.showlegend") is False  # the page has its own list


def test_differences_are_those_that_python_finds(page, runs):
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


def test_columns_sort_both_ways_and_by_keyboard(page):
    page.click("#finals-table th button:text-is('test_error')")
    ascending = column(page, "test_error")
    assert ascending == sorted(ascending, key=lambda cell: float(cell.split()[0]))
    assert page.evaluate("document.activeElement.textContent") == "test_error"
    page.keyboard.press("Enter")
    assert column(page, "test_error") == ascending[::-1]
    assert page.locator("#finals-table th[aria-sort=descending]").inner_text() == "test_error"


def test_what_differs_between_the_shown_groups(page):
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


def test_another_experiment_has_its_own_metrics(page):
    page.select_option("#experiment", "cifar100_vit")
    options = page.locator("#metric option").all_inner_texts()
    accuracies = [f"test_accuracy/{k}" for k in (1, 5, 10)]
    last = ["learning_rate", "performance/step_seconds"]
    assert options == ["mean_topk_error", *accuracies, "train_loss", *last]
    assert column(page, "mean_topk_error") == ["62.8 ± 6.4"]
    page.select_option("#metric", "learning_rate")  # one for all seeds: no differences
    assert page.locator("#finals-table thead th").all_inner_texts() == ["runs", "learning_rate", "seeds"]


def test_what_was_left_out_is_listed(page):
    assert page.inner_text("#problems summary") == "Left out (1)"
    page.click("#problems summary")
    assert column(page, "reason", "#problems-table") == ["config.json is missing"]
    page.click("#problems summary")


def test_the_address_brings_back_what_was_chosen(browser, path, page):
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
    with watched(browser, path, fragment=fragment, ready="#plot .main-svg") as (page, _):
        assert [name for name, _, _ in lines(page)] == names
        assert len(names) == 3
        assert page.evaluate(RANGES) == pytest.approx(ranges, rel=1e-3)
        assert [page.input_value(f"#{name}") for name in ("metric", "axis")] == ["train_loss", "epoch"]
        assert page.input_value("#reference") == group_id(page, "b")
        assert page.is_checked("#log-y")
        assert column(page, "runs") == order
        assert page.evaluate("location.hash") == fragment


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The page of the committed pruning runs and one that is not among them."""
    directory = tmp_path_factory.mktemp("mixed")
    write_workdir(directory / "mine", [[90.0] * 3, [7.0, 8.0, 6.0]], variant="hard")
    assert main([str(RESULTS / "mnist_pruning"), str(directory / "mine"), f"--out={directory}"]) == 0
    return directory / "index.html"


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 800, "light"), (390, 844, "dark")])
def test_a_page_opens_short_legible_and_without_scrolling_sideways(browser, mixed, width, height, scheme):
    with watched(browser, mixed, width=width, height=height, scheme=scheme, ready="#plot .main-svg") as (page, _):
        assert 1 < len(lines(page)) <= 8
        assert page.locator("#finals-table tr.own").count() == page.locator("#list .badge").count() == 1
        assert page.evaluate("document.documentElement.scrollHeight") < MOST_PIXELS
        assert page.evaluate("document.documentElement.scrollWidth") == width
        ratios = page.evaluate(CONTRASTS)
        assert ratios["theme"] == scheme
        assert ratios["text"] >= 4.5
        assert ratios["curves"] >= 3
        assert ratios["controls"] >= 3
        assert page.evaluate("byId('plot')._fullLayout.dragmode") == ("zoom" if width > 1000 else False)
        found = Axe().run(page)
        assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found.response["violations"]] == []


def test_everything_has_a_name_and_can_be_reached_by_keyboard(page):
    assert "4 of 4 curves shown" in page.get_attribute("#plot", "aria-label")
    page.focus("a.skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("a.skip")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    wanted = {"metric", "axis", "log-x", "curves-in", "curves-svg", "filter", "hide-all", "reference"}
    assert wanted | {"finals-csv", "fields-csv"} <= reached
    assert any(name.startswith("show-") for name in reached)
