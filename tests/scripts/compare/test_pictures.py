"""Images and histograms in the page: of the runs that have some, as far as there is room."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from experiments.core.record.pictures import Histogram, Pictures
from experiments.core.report.results import Run
from scripts.compare import contents as contents_lib
from scripts.compare import pictures as pictures_lib
from scripts.compare.groups import group
from scripts.compare.pictures import pictures
from scripts.compare.workdirs import find
from tests.scripts.browser import watched
from tests.scripts.compare.looking import address
from tests.scripts.workdirs import write_workdir

TITLES = "byId('pictures-plot').layout.annotations.map((title) => title.text)"


def test_images_are_those_that_were_kept_and_histograms_their_counts():
    rng = np.random.default_rng(0)
    images = {"colours": rng.integers(256, size=(2, 3, 5, 3)), "grey": rng.integers(256, size=(1, 4, 4, 1))}
    images = {name: image.astype(np.uint8) for name, image in images.items()}
    run = Run("a", {}, [], {}, pictures=Pictures(images, {"kernel": Histogram.of(np.array([-1.0, 3.0, 3.0]))}))
    found = pictures([Run("none", {}, [], {}), run])
    (one,) = found["shown"]
    assert (one["name"], found["left_out"]) == ("a", 0)
    for name, kept in images.items():
        for uri, image in zip(one["images"][name], kept, strict=True):
            kind, _, content = uri.partition(",")
            assert kind == "data:image/png;base64"
            read = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
            np.testing.assert_array_equal(read.reshape(image.shape), image)
    assert one["histograms"] == {"kernel": {"low": -1, "high": 3, "counts": [1, *[0] * 62, 2]}}


def test_of_many_runs_as_many_are_shown_as_there_is_room_for(monkeypatch):
    kept = Pictures(histograms={"kernel": Histogram.of(np.arange(4.0))})
    runs = [Run(str(number), {}, [], {}, pictures=kept) for number in range(5)]
    size = len(json.dumps(pictures(runs[:1])["shown"][0], separators=(",", ":")))
    monkeypatch.setattr(pictures_lib, "BUDGET", 3 * size)
    found = pictures(runs)
    assert [one["name"] for one in found["shown"]] == ["0", "1", "2"]
    assert found["left_out"] == 2


def test_the_room_of_pictures_is_taken_from_that_of_curves(tmp_path, monkeypatch):
    monkeypatch.setattr(contents_lib, "BUDGET", 6000)
    kept = Pictures(histograms={str(number): Histogram.of(np.arange(64.0)) for number in range(30)})
    drawn = {}
    for name, seen in {"without": None, "with": kept}.items():
        write_workdir(tmp_path / name / "run", [[90.0 / (1 + row)] for row in range(400)], pictures=seen)
        drawn[name] = contents_lib.contents(group(find([str(tmp_path / name)])), [])["points"]["drawn"]
    assert 0 < drawn["with"] < drawn["without"]


def test_a_run_is_chosen_among_those_shown_that_have_pictures(page):
    names = page.locator("#pictures-run option").all_inner_texts()
    assert len(names) == 2
    assert "hard" in names[0]
    assert page.locator("#images img").count() == 3
    image = page.locator("#images img").first
    assert image.get_attribute("alt") == "first_layer, image 1 of 3"
    assert page.evaluate("document.querySelector('#images img').naturalWidth") == 4
    assert page.locator("#pictures-part").is_hidden()
    assert page.evaluate(TITLES) == [f"network/block_{i}/Attention_0/<br>query/kernel" for i in (1, 2)]
    bars = page.evaluate("byId('pictures-plot').data.map(({ x, y }) => [x[0], x.at(-1), y])")
    assert bars[1][:2] == pytest.approx([-2 * 63 / 64, 2 * 63 / 64])
    assert bars[0][2] == [10] * 64
    page.uncheck("#show-0")
    assert page.locator("#pictures-run option").count() == 1
    assert page.locator("#pictures-part option").all_inner_texts() == [
        "1 to 12 of 30",
        "13 to 24 of 30",
        "25 to 30 of 30",
    ]
    assert len(page.evaluate(TITLES)) == 12
    page.click("#hide-all")
    assert page.locator("#pictures").is_hidden()
    page.click("#show-all")
    page.select_option("#experiment", "cifar100_vit")
    assert page.locator("#pictures").is_hidden()


def test_what_is_chosen_is_in_the_address(browser, path, page):
    page.uncheck("#show-0")
    page.select_option("#pictures-run", "c")
    page.select_option("#pictures-part", "24")
    page.check("#pictures-log-y")
    titles, fragment = page.evaluate(TITLES), address(page)
    assert len(titles) == 6
    with watched(browser, path, fragment=fragment) as (again, _):
        assert again.evaluate(TITLES) == titles
        assert again.evaluate("byId('pictures-plot')._fullLayout.yaxis.type") == "log"
        assert address(again) == fragment


def test_histograms_are_saved_as_high_as_they_are_drawn(page):
    with page.expect_download() as download:
        page.click("#pictures-plot-svg")
    assert download.value.suggested_filename.startswith("histograms-hard")
    saved = download.value.path().read_text()
    assert f'height="{page.evaluate("byId(`pictures-plot`).clientHeight")}"' in saved
