"""The page in a browser: it opens without errors and without a network, and its controls do what they say."""

import json

import pytest

from experiments.core.record.files import write_json
from experiments.core.record.workdir import Workdir
from experiments.core.report.paired import difference, significance
from experiments.core.report.results import LAUNCH, load
from scripts.compare.__main__ import main
from tests.scripts.browser import watched
from tests.scripts.workdirs import write_fine_tuning, write_workdir

START = [90.0, 88.0, 89.0]
STOPPED = 3  # place of that run in the page
EXPERIMENT = {"experiment": "mnist_pruning", "command": ["python", "-m", "experiments.mnist_pruning"], "resumed": []}

# By the formula of the Web Content Accessibility Guidelines, the worst of some colours on both backgrounds.
CONTRASTS = """(() => {
  const channel = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (hex) => [1, 3, 5].map((i) => channel(parseInt(hex.slice(i, i + 2), 16) / 255))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0.05);
  const ratio = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
  const grounds = ["--background", "--raised"].map(style);
  const worst = (colours) => Math.min(...colours.flatMap((one) => grounds.map((ground) => ratio(one, ground))));
  const texts = ["--text", "--faint", "--accent", "--good", "--middling", "--bad"];
  return { theme: theme(), text: worst(texts.map(style)), curves: worst(PALETTES[theme()]),
    controls: worst([style("--control")]) };
})()"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Four pruning runs, and one of another experiment."""
    directory = tmp_path_factory.mktemp("runs")
    late = [[20.0 - i, 19.0 - i, 18.0 - i] for i in range(8)]
    write_workdir(directory / "a", [START, *late, [7.0, 8.0, 6.0]], method="hard")
    write_workdir(directory / "b", [START, *late, [5.0, 6.5, 4.0]], lam__start=0.1)
    write_workdir(directory / "c", [START, *late, [9.0, None, 8.5]], lam__start=1.0)
    write_workdir(directory / "d<b>", [START, *late, [3.0, 3.0, 3.0]], dataset="<script>oops()</script>")
    Workdir(directory / "d<b>").summary.unlink()
    write_json(directory / "d<b>" / LAUNCH, {"state": "failed", "reason": "ValueError: <no memory>"})
    for name in ("a", "b", "c", "d<b>"):
        Workdir(directory / name).environment.write_text(json.dumps(EXPERIMENT))
    write_fine_tuning(directory / "e", {1: [20.0, 21.0], 5: [40.0, 41.0]})
    (directory / "f").mkdir()
    (directory / "f" / "summary.json").write_text("{}")
    return directory


@pytest.fixture(scope="module")
def path(runs, tmp_path_factory):
    """The page, looked at with the pruning experiment chosen."""
    out = tmp_path_factory.mktemp("page")
    assert main([str(runs), f"--out={out}", "--no_figures"]) == 0
    return out / "index.html"


@pytest.fixture(scope="module")
def opened(browser, path):
    """One page for most tests: to open it takes longer than to look at it."""
    with watched(browser, path) as (page, seen):
        page.select_option("#experiment", "mnist_pruning")
        page.evaluate(
            "window.before = [...document.querySelectorAll('select, input')]"
            ".map((node) => [node, node.value, node.checked])"
        )
        yield page, seen


@pytest.fixture
def page(opened):
    """The page as it was opened, with the pruning experiment chosen."""
    page, seen = opened
    page.evaluate(
        """() => {
          hidden.clear();
          for (const [node, value, checked] of before) Object.assign(node, { value, checked });
          byId("experiment").dispatchEvent(new Event("change"));
          for (const [node, value] of before) node.value = value;
          redraw();
          byId("first").dispatchEvent(new Event("change"));
          byId("curves-plot-reset").click();
          document.activeElement.blur();
          scrollTo(0, 0);
        }"""
    )
    yield page
    assert seen.wrong(page.url) == []


def lines(page):
    """The curves that are drawn, without their bands: name and values."""
    return page.evaluate(
        "document.getElementById('curves-plot').data.filter((trace) => !trace.fill)"
        ".map((trace) => [trace.name, trace.x, trace.y])"
    )


def column(page, name, table="#finals-table"):
    index = page.locator(f"{table} thead th").all_inner_texts().index(name)
    return [row.locator("th, td").nth(index).inner_text() for row in page.locator(f"{table} tbody tr").all()]


def test_curves_are_hidden_and_shown_by_mouse_and_keyboard(page):
    names = [name for name, _, _ in lines(page)]
    assert len(names) == 4
    assert "dataset=&lt;script&gt;oops()&lt;/script&gt;" in names[STOPPED]
    boxes = page.locator("#legend-list input")
    boxes.nth(1).click()
    assert len(lines(page)) == 3
    boxes.nth(1).press("Space")  # still focused after the list was drawn again
    assert len(lines(page)) == 4
    page.click("#hide-all")
    assert lines(page) == []
    page.fill("#filter", "lam.start=0.1")
    assert boxes.count() == 1
    page.click("#show-all")
    assert len(lines(page)) == 1
    assert page.evaluate("document.getElementById('scatter-plot').data.length") == 1


def test_axes_metric_smoothing_and_logarithms(page):
    page.select_option("#axis", "seconds")
    assert lines(page)[0][1][:3] == [0, 2, 4]
    page.select_option("#metric", "train_loss")
    assert lines(page)[0][2][1] == pytest.approx(19 / 50, rel=1e-4)
    page.select_option("#metric", "test_error")
    rough = lines(page)[0][2]
    page.fill("#smooth", "10")
    smooth = lines(page)[0][2]
    assert rough[0] > smooth[0] > rough[1]
    assert page.inner_text("#smooth-value") == "10 % of the length"
    page.fill("#smooth", "0")
    assert lines(page)[0][2] == rough
    page.check("#log-y")
    assert page.evaluate("document.getElementById('curves-plot')._fullLayout.yaxis.type") == "log"
    bands = "document.getElementById('curves-plot').data.filter((trace) => trace.fill).length"
    assert page.evaluate(bands) == 4
    page.uncheck("#bands")
    assert page.evaluate(bands) == 0


def test_zoom_by_mouse_and_by_keyboard(page):
    ranges = "document.getElementById('curves-plot')._fullLayout.xaxis.range"
    low, high = page.evaluate(ranges)
    page.locator("#curves-plot-in").press("Enter")
    near = page.evaluate(ranges)
    assert near[1] - near[0] == pytest.approx((high - low) / 2)
    page.click("#curves-plot-right")
    assert page.evaluate(ranges)[0] == pytest.approx(near[0] + (near[1] - near[0]) / 4)
    page.click("#curves-plot-reset")
    assert page.evaluate(ranges) == pytest.approx([low, high])
    box = page.locator("#curves-plot .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.25 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.75 * box["height"], steps=4)
    page.mouse.up()
    page.wait_for_function(f"{ranges}[1] < {low + 0.6 * (high - low)}")
    assert page.evaluate(ranges)[0] == pytest.approx(low + 0.25 * (high - low), rel=0.05, abs=0.02 * (high - low))


def test_hovering_names_the_value_and_its_interval(page):
    for box in page.locator("#legend-list input").all()[1:]:
        box.click()
    box = page.locator("#curves-plot .nsewdrag").first.bounding_box()
    place = page.evaluate(
        "(() => { const { xaxis, yaxis } = document.getElementById('curves-plot')._fullLayout;"
        " return [xaxis.d2p(50), yaxis.d2p(15)]; })()"
    )
    page.mouse.move(box["x"] + place[0], box["y"] + place[1])
    page.wait_for_selector("#curves-plot .hovertext")
    text = page.locator("#curves-plot .hovertext").first.text_content()
    assert "15.0 ± 2.5" in text
    assert "step 50" in text


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
    page.select_option("#reference", str(page.evaluate("DATA.groups.findIndex((group) => group.runs[0] === 'a')")))
    names, shown = column(page, "runs"), column(page, "difference")
    by_name = dict(
        zip(names, zip(shown, column(page, "significance"), column(page, "pairs"), strict=True), strict=True)
    )

    def of(text):
        return next(cells for name, cells in by_name.items() if text in name)

    for run, text in ((relaxed, "lam.start=0.1"), (lost, "lam.start=1,")):
        expected, (minus, p, pairs) = difference(run, hard, "test_error"), of(text)
        mean, half = map(float, minus.split(" ± "))
        assert mean == pytest.approx(expected["mean"], abs=0.06)
        assert half == pytest.approx(expected["interval95"], rel=0.1)
        assert p == next(
            (f"p < {level}" for level in (0.001, 0.01, 0.05) if significance(run, hard, "test_error") < level),
            "p > 0.05",
        )
        assert pairs == str(sum(value is not None for value in expected["per_seed"]))
    assert of("method=hard")[:2] == ("-", "-")
    assert of("failed")[0] == "-"


def test_the_reference_is_at_first_a_group_that_is_shown(page):
    places = page.evaluate("['a', 'b'].map((name) => DATA.groups.findIndex((group) => group.runs[0] === name))")
    first, second = map(str, sorted(places))
    page.uncheck(f"#show-{first}")
    page.select_option("#experiment", "cifar100_vit")
    page.select_option("#experiment", "mnist_pruning")
    assert page.input_value("#reference") == second
    page.select_option("#reference", first)  # as asked for, shown or not
    page.select_option("#difference-metric", "train_loss")
    assert page.input_value("#reference") == first


def test_of_many_curves_those_of_few_seeds_are_hidden_at_first(browser, tmp_path):
    for number in range(12):
        write_workdir(tmp_path / f"trial-{number}", [[90.0], [7.0]], lam__start=0.1 * (number + 1), split="validation")
    write_workdir(tmp_path / "final", [START, [7.0, 8.0, 6.0]], split="test")
    assert main([str(tmp_path), f"--out={tmp_path / 'page'}", "--no_figures"]) == 0
    with watched(browser, tmp_path / "page" / "index.html") as (page, seen):
        page.select_option("#metric", "test_error")
        assert len(lines(page)) == 1
        assert len(column(page, "runs")) == 1
        assert "12 of 13 rows are left out" in page.inner_text("#finals-note")
        page.select_option("#metric", "valid_error")
        assert lines(page) == []
        assert "12 of 12 curves are hidden" in page.inner_text("#curves-caption")
        page.click("#show-all")
        assert len(lines(page)) == 12
        page.select_option("#difference-metric", "valid_error")
        assert len(column(page, "runs")) == 12
        page.click("#hide-all")
        page.uncheck("#shown-only")
        assert len(column(page, "runs")) == 12
        assert seen.wrong(page.url) == []


def test_configs_differ_in_what_differs(page):
    groups = page.evaluate("DATA.groups.map((group) => group.runs[0])")
    page.select_option("#first", str(groups.index("a")))
    page.select_option("#second", str(groups.index("b")))
    assert column(page, "field", "#configs-table") == ["lam.start", "method"]
    assert column(page, "second", "#configs-table") == ["0.1", "relaxed"]
    page.check("#equal")
    assert "optimizer.learning_rate" in column(page, "field", "#configs-table")
    page.uncheck("#equal")
    page.select_option("#second", str(groups.index("a")))
    assert page.inner_text("#configs-table tbody") == "No field differs."


def test_scatter_against_a_field(page):
    page.select_option("#field", "lam.start")
    page.select_option("#scatter-metric", "test_error")
    points = page.evaluate("document.getElementById('scatter-plot').data.map((trace) => [trace.x[0], trace.y[0]])")
    assert sorted(points) == [[1e-4, 3], [1e-4, 7], [0.1, pytest.approx(5.1667, rel=1e-4)], [1, 8.75]]
    assert page.evaluate("document.getElementById('scatter-plot')._fullLayout.xaxis.type") == "log"
    page.select_option("#field", "method")
    assert page.evaluate("document.getElementById('scatter-plot')._fullLayout.xaxis.type") == "category"


def test_states_and_what_was_left_out_are_shown(page):
    states = dict(zip(column(page, "run", "#runs-table"), column(page, "state", "#runs-table"), strict=True))
    assert states == {"a": "done", "b": "done", "c": "done", "d<b>": "failed at epoch 9 of 9", "e": "done"}
    errors = dict(zip(column(page, "run", "#runs-table"), column(page, "last error", "#runs-table"), strict=True))
    assert errors == {"a": "-", "b": "-", "c": "-", "d<b>": "ValueError: <no memory>", "e": "-"}
    assert column(page, "reason", "#problems-table") == ["config.json is missing"]


def test_another_experiment_has_its_own_metrics(page):
    page.select_option("#experiment", "cifar100_vit")
    options = page.locator("#metric option").all_inner_texts()
    assert options[:3] == ["mean_topk_error", "test_accuracy/1", "test_accuracy/5"]
    assert column(page, "mean_topk_error") == ["69.5 ± 6.4"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_text_and_curves(browser, path, scheme):
    with watched(browser, path, scheme=scheme) as (page, _):
        ratios = page.evaluate(CONTRASTS)
        assert ratios["theme"] == scheme
        assert ratios["text"] >= 4.5
        assert ratios["curves"] >= 3
        assert ratios["controls"] >= 3
        other = {"light": "dark", "dark": "light"}[scheme]
        page.select_option("#theme", other)
        assert page.evaluate("document.documentElement.dataset.theme") == other


def test_a_phone_scrolls_down_and_not_sideways(browser, path):
    with watched(browser, path, width=360, height=740) as (page, _):
        page.select_option("#experiment", "mnist_pruning")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        plot = page.locator("#curves-plot").bounding_box()
        assert plot["x"] >= 0
        assert plot["x"] + plot["width"] <= 360
        assert page.evaluate("document.getElementById('curves-plot')._fullLayout.dragmode") is False


def test_everything_has_a_name_and_can_be_reached_by_keyboard(page):
    assert page.locator("[role=img]:not([aria-label])").count() == 0
    assert "4 of 4 curves shown" in page.get_attribute("#curves-plot", "aria-label")
    unnamed = page.evaluate(
        """[...document.querySelectorAll("main select, main input, main button, header select")].filter((node) =>
          !(node.labels?.length || node.getAttribute("aria-label") || node.textContent))
          .map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    page.focus("a.skip")
    reached = set()
    for _ in range(70):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    wanted = {
        "metric",
        "axis",
        "smooth",
        "log-x",
        "curves-plot-in",
        "filter",
        "hide-all",
        "reference",
        "field",
        "first",
    }
    assert wanted <= reached
    assert any(name.startswith("show-") for name in reached)


def test_printed_pages_are_light_and_whole(browser, path):
    with watched(browser, path, scheme="dark") as (page, _):
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        assert page.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"
        assert page.evaluate("getComputedStyle(document.querySelector('.tall')).overflowY") == "visible"
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
