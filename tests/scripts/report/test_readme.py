"""Tables of the READMEs: written between their marks alone, and none forgotten."""

import pytest

from experiments.core.errors import UsageError
from scripts.report import readme


def test_blocks_are_written_between_marks(tmp_path):
    text = "before\n<!-- speed: by hand -->\n| old |\n<!-- end of speed -->\nafter\n"
    pages = [tmp_path / place / "README.md" for place in ("", "ops", "results/mnist")]
    for page in pages:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    made = {"speed": ["| a |", "| b |"], "unused": ["x"]}
    assert readme.update(tmp_path / "results", made) == pages
    for page in pages:
        assert page.read_text() == text.replace("| old |", "| a |\n| b |")
    assert readme.update(tmp_path / "results", made) == []
    with pytest.raises(UsageError, match="'faster'"):
        readme.fill("<!-- faster: x -->\n<!-- end of faster -->\n", {"speed": []})
