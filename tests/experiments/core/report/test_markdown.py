"""Cells and tables."""

import pandas as pd

from experiments.core.report.markdown import plus_minus, signed, table

VALUE = {"per_seed": [1.0, 2.0], "mean": 1.5, "interval95": 6.353}


def test_cells():
    assert plus_minus(VALUE) == "1.50 ± 6.35"
    assert plus_minus(VALUE, scale=100) == "150.00 ± 635.30"
    assert signed({"mean": 0.5, "interval95": None}) == "+0.50"
    assert plus_minus(None) == plus_minus({"mean": None, "interval95": None}) == "-"


def test_constant_columns_go_below_the_table():
    cells = pd.DataFrame({"method": ["a", "b"], "setting": "x", "error": ["1", "2"], "seeds": "5"})
    assert table(cells) == [
        "| method | error |",
        "| --- | ---: |",
        "| a | 1 |",
        "| b | 2 |",
        "",
        "In every row: setting x, seeds 5.",
        "",
    ]
    assert table(cells[:1])[0] == "| method | setting | error | seeds |"
    assert table(cells[:0]) == []
