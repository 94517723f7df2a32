"""What the reader has chosen is in the address: who opens it sees the same."""

import pytest

from tests.scripts.browser import watched
from tests.scripts.compare.looking import address, column, group_id, lines

RANGES = "['xaxis', 'yaxis'].flatMap((axis) => byId('curves-plot')._fullLayout[axis].range)"


def test_a_page_that_nobody_has_touched_has_a_plain_address(page):
    assert address(page) == ""


def test_the_address_brings_back_what_was_chosen(browser, path, page):
    page.select_option("#metric", "train_loss")
    page.select_option("#axis", "epoch")
    page.check("#log-y")
    page.select_option("#difference-metric", "test_error")
    page.select_option("#reference", group_id(page, "b"))
    page.uncheck("#shown-only")
    page.uncheck("#show-2")
    page.click("#finals-tools summary")
    page.check("[id='finals-column-lam.start']")
    for _ in range(2):
        page.click("#finals-table th button:text-is('lam.start')")
    page.select_option("#add-config", group_id(page, "c"))
    page.click("#curves-plot-in")
    names, ranges, fields = [name for name, _, _ in lines(page)], page.evaluate(RANGES), column(page, "lam.start")
    assert fields == ["1", "0.1", "1e-4", "-"]
    fragment = address(page)
    with watched(browser, path, fragment=fragment) as (page, _):
        assert [name for name, _, _ in lines(page)] == names
        assert len(names) == 3
        assert page.evaluate(RANGES) == pytest.approx(ranges, rel=1e-3)
        assert [page.input_value(f"#{name}") for name in ("metric", "axis", "difference-metric")] == [
            *("train_loss", "epoch", "test_error")
        ]
        assert page.input_value("#reference") == group_id(page, "b")
        assert page.is_checked("#log-y")
        assert not page.is_checked("#shown-only")
        assert column(page, "lam.start") == fields
        assert page.locator("#configs-table thead th").count() == 4
        assert address(page) == fragment


def test_an_address_of_what_is_not_there_is_read_as_far_as_it_goes(browser, path):
    fragment = "#metric=nothing&show=00000000&hide=.&curves-plot-zoom=a,b&configs=x&at=nowhere&%E0%A4%A=&&="
    with watched(browser, path, fragment=fragment) as (page, _):
        assert page.input_value("#metric") == "test_error"
        assert len(lines(page)) == 4
        page.evaluate("location.hash = 'nowhere'")
        page.evaluate("location.hash = 'runs'")
        page.wait_for_url("**at=runs*")
        assert len(lines(page)) == 4


def test_another_experiment_and_a_section_are_in_the_address(browser, path, page):
    page.select_option("#experiment", "cifar100_vit")
    page.click("nav a[href='#runs']")
    page.wait_for_url("**at=runs*")
    with watched(browser, path, fragment=address(page)) as (page, _):
        assert page.input_value("#metric") == "mean_topk_error"
        assert page.evaluate("scrollY") > 200
