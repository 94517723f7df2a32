"""What tests read from the page of runs."""


def lines(page):
    """The curves that are drawn, without their bands: name and values."""
    return page.evaluate(
        "document.getElementById('curves-plot').data.filter((trace) => !trace.fill)"
        ".map((trace) => [trace.name, trace.x, trace.y])"
    )


def column(page, name, table="#finals-table"):
    index = page.locator(f"{table} thead th").all_inner_texts().index(name)
    return [row.locator("th, td").nth(index).inner_text() for row in page.locator(f"{table} tbody tr").all()]


def group_id(page, run):
    """Of the group whose first run has that name."""
    return page.evaluate("(name) => DATA.groups.find((group) => group.runs[0] === name).id", run)
