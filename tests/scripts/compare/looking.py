"""Reads the page of runs for tests."""


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
