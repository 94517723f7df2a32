"""The report of sizes: every file in one room, code counted by lines, Markdown by words, rooms over budget marked."""

import pytest

from scripts import size


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("ops/topk.py", "ops, public modules"),
        ("ops/scalar/kernels/gpu.py", "ops/scalar/kernels"),
        ("experiments/vmoe/report.py", "reports of core and experiments"),
        ("experiments/core/cli.py", "core: input, record, suite, CLI"),
        ("experiments/vmoe/layer.py", "four experiments without report"),
        ("tests/line_mutants.py", "fuzz, chaos, mutants"),
        ("Makefile", "everything else"),
    ],
)
def test_every_file_belongs_to_a_room(path, room):
    assert size.room_of(path) == room


def test_lines_files_and_words_are_counted_and_marked_beside_their_budgets():
    files = [
        "configs/a.py",
        "configs/b.py",
        "scripts/compare/assets/page.js",
        "docs/a.md",
        "results/x/table.md",
        "LICENSE",
    ]
    texts = {
        "configs/a.py": "x = 1\n" * 901,
        "configs/b.py": "y = 2\n",
        "scripts/compare/assets/page.js": "let x;\n" * 7,
        "docs/a.md": "three short words\n",
        "results/x/table.md": "made by runs",
    }
    rows = [line.split() for line in size.lines(texts, files)]
    assert ["configs", "902", "900", "2", "0", "2", "over"] in rows
    assert ["scripts/compare", "7", "1,200", "1", "0"] in rows
    assert ["docs", "0", "-", "1", "3"] in rows
    assert ["all", "but", "tests,", "lines", "909", "26,000"] in rows
    assert ["Markdown,", "words", "3", "30,000"] in rows
    assert ["all", "files", "6", "750"] in rows
