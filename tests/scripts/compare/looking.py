"""What tests read from the page of runs, and how they bring it back to its beginning."""


def remember(page):
    """Keeps what is chosen in a page that nobody has touched."""
    page.evaluate(
        "window.before = [...document.querySelectorAll('select, input')]"
        ".map((node) => [node, node.value, node.checked])"
    )


def reset(page):
    """Brings a page back to what `remember` has seen."""
    page.evaluate(
        """() => {
          hidden.clear();
          hideTrials();
          for (const chosen of Object.values(chosenColumns)) chosen.clear();
          for (const table of Object.keys(sortedBy)) delete sortedBy[table];
          for (const [node, value, checked] of before) Object.assign(node, { value, checked });
          experiment = byId("experiment")?.value ?? experiment;
          experimentChanged();
          for (const [node, value] of before) node.value = value;
          document.querySelectorAll("details").forEach((node) => { node.open = false; });
          applyTheme();
          redraw();
          drawRuns();
          byId("curves-plot-reset").click();
          document.activeElement.blur();
          scrollTo(0, 0);
          sectionShown = "";
          firstCompared = compared;
          changedControls.clear();
          writeState();
        }"""
    )


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


def address(page):
    """Of the page, without the part before the #, once what was changed last is in it."""
    page.evaluate("writeState()")
    return page.evaluate("location.hash")
