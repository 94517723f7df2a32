"""The page in a browser: it opens without errors and without a network, and its controls do what they say."""

import html
import re
import struct

import pytest

from scripts.compare.__main__ import main
from scripts.compare.workdirs import RESULTS
from tests.scripts.browser import watched
from tests.scripts.compare.looking import column, lines, remember, reset
from tests.scripts.workdirs import write_workdir

START = [90.0, 88.0, 89.0]
SCRIPT = "<script>oops()</script>"  # the data set of that run
STOPPED = 3  # place of that run in the page


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
    page.fill("#filter", "lam = 0.1")
    assert boxes.count() == 1
    page.click("#show-all")
    assert len(lines(page)) == 1
    assert page.evaluate("document.getElementById('scatter-plot').data.length") == 1


def legend(svg):
    """The names in the legend of a plot that is saved, each of which may take several lines."""
    names = re.findall(r'<text class="legendtext"[^>]*>(.*?)</text>', svg)
    return [html.unescape(" ".join(re.sub("<[^>]*>", " ", name).split())) for name in names]


@pytest.mark.parametrize("plot", ["curves", "scatter", "parallel", "pictures"])
def test_plots_are_saved_with_the_names_of_what_they_show(page, plot):
    def saved(kind):
        with page.expect_download() as download:
            page.click(f"#{plot}-plot-{kind}")
        return download.value.path().read_bytes()

    svg = saved("svg").decode()
    names = legend(svg)
    if plot == "pictures":  # whose plots have titles
        assert names == []
        return
    shown = page.evaluate(f"byId('{plot}-plot').data.filter((trace) => !trace.fill).map((trace) => trace.name)")
    assert names == [html.unescape(name) for name in shown]
    assert len(shown) == (3 if plot == "scatter" else 4)  # one has no number in the field
    width, height = struct.unpack(">II", saved("png")[16:24])  # of the header of a PNG
    assert (width, height) == (2200, 2 * int(re.search(r' height="(\d+)"', svg)[1]))
    assert height > 2 * (620 + 15 * len(names))
    assert page.evaluate(f"byId('{plot}-plot')._fullLayout.showlegend") is False  # the page has its own list


def test_where_colours_are_those_of_a_field_its_values_are_saved(page):
    page.select_option("#split", "dataset")
    with page.expect_download() as download:
        page.click("#scatter-plot-svg")
    assert legend(download.value.path().read_text()) == ["dataset = mnist", f"dataset = {SCRIPT}"]


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


@pytest.fixture(scope="module")
def opened_sweep(browser, tmp_path_factory):
    """Trials of a sweep, a run on test with its choice, one of the committed runs, and one of the reader's own."""
    directory = tmp_path_factory.mktemp("swept")
    for number in range(12):
        name = directory / "sweep" / f"trial-{number}"
        write_workdir(name, [[90.0], [7.0]], lam__start=0.1 * (number + 1), split="validation")
    write_workdir(directory / "final", [START, [7.0, 8.0, 6.0]], split="test")
    write_workdir(directory / "mine", [[90.0], [30.0], [7.0]], split="validation", lam__start=0.5, density=0.3)
    committed = RESULTS / "mnist_pruning" / "final-layers123-hard"
    assert main([str(directory), str(committed), f"--out={directory / 'page'}", "--no_figures"]) == 0
    with watched(browser, directory / "page" / "index.html") as (page, _):
        remember(page)
        yield page


@pytest.fixture
def swept(opened_sweep):
    """The page as it was opened."""
    reset(opened_sweep)
    return opened_sweep


def test_trials_of_sweeps_are_hidden_at_first_and_named_and_one_click_shows_them(swept):
    assert "12 of 15 groups are hidden, trials of sweeps" in swept.inner_text("#hidden-note")
    swept.click("#hidden-note summary")
    assert swept.locator("#hidden-note li").count() == 12
    assert "lam = 1.2" in swept.inner_text("#hidden-note ul")
    swept.select_option("#metric", "valid_error")
    assert len(lines(swept)) == 1
    swept.uncheck("#difference-only")
    assert len(column(swept, "runs")) == 3
    assert "12 of 15 rows are left out" in swept.inner_text("#finals-note")
    swept.click("#show-hidden")
    assert len(lines(swept)) == 13
    assert swept.locator("#hidden-note").is_hidden()
    swept.click("#hide-all")
    swept.uncheck("#shown-only")
    assert len(column(swept, "runs")) == 15


def test_the_readers_own_runs_stand_out(swept):
    own = [text for text in swept.locator("#legend-list li").all_inner_texts() if "not in results/" in text]
    assert len(own) == 1
    assert "relaxed top-k" in own[0]
    widths = swept.evaluate("byId('curves-plot').data.filter((trace) => !trace.fill).map((trace) => trace.line.width)")
    assert widths == [2, 4]
    assert swept.locator("#finals-table tr.own").count() == 1


def test_parallel_coordinates_go_through_every_field_to_the_metric(swept):
    swept.select_option("#parallel-metric", "valid_error")
    names, traces = swept.evaluate(
        "[byId('parallel-plot').layout.xaxis.ticktext, byId('parallel-plot').data.map((trace) => trace.y)]"
    )
    assert names == ["lam.start", "density", "epochs", "valid_error"]
    ticks = swept.evaluate("byId('parallel-plot').layout.annotations.map((tick) => tick.text)")
    assert ticks[:2] == ["0.1", "1.2"]
    assert len(traces) == 13
    assert sorted(y[0] for y in traces) == pytest.approx([i / 11 for i in sorted([*range(12), 4])])
    swept.check("#parallel-shown")
    assert swept.evaluate("byId('parallel-plot').data.length") == 1


def test_a_field_that_runs_agree_on_where_they_use_it_has_no_axis(page):
    names = page.evaluate("byId('parallel-plot').layout.xaxis.ticktext")
    assert {"method", "lam.start"} <= set(names)
    assert "p" not in names  # 2 of the relaxed runs, and not used by the hard one


def test_what_was_measured_twice_is_drawn_as_values_and_not_as_curves(page):
    page.select_option("#experiment", "cifar100_vit")
    (values,) = lines(page)
    assert values[1:] == [[pytest.approx(69.5)], [0]]
    assert "which makes no curve" in " ".join(page.inner_text("#curves-caption").split())


def test_scatter_against_a_field(page):
    page.select_option("#field", "lam.start")
    page.select_option("#scatter-metric", "test_error")
    points = page.evaluate("document.getElementById('scatter-plot').data.map((trace) => [trace.x[0], trace.y[0]])")
    assert sorted(points) == [[1e-4, 3], [0.1, pytest.approx(5.1667, rel=1e-4)], [1, 8.75]]
    assert page.evaluate("document.getElementById('scatter-plot')._fullLayout.xaxis.type") == "log"
    page.select_option("#field", "method")
    assert page.evaluate("document.getElementById('scatter-plot')._fullLayout.xaxis.type") == "category"


def test_another_experiment_has_its_own_metrics(page):
    page.select_option("#experiment", "cifar100_vit")
    options = page.locator("#metric option").all_inner_texts()
    assert options[:3] == ["mean_topk_error", "test_accuracy/1", "test_accuracy/5"]
    assert column(page, "mean_topk_error") == ["69.5 ± 6.4"]
