"""Tables of the READMEs: written between their marks alone, and none forgotten."""

import pytest

from experiments.core.errors import UsageError
from experiments.core.report.finding import NOT_POSSIBLE, Finding, Verdict
from scripts.report import readme
from scripts.report.claims import CLAIMS


def test_update_writes_between_the_marks_alone(tmp_path):
    texts = {
        "README.md": "before\n<!-- speed: by hand -->\n| old |\n<!-- end of speed -->\nafter\n",
        "ops/README.md": "no table\n",
        "results/mnist/README.md": "<!-- why: x -->\n<!-- end of why -->\n<!-- speed: x -->\n<!-- end of speed -->\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    made = {"speed": ["| a |", "| b |"], "why": ["Words."], "unused": ["x"]}
    changed = readme.update(tmp_path / "results", made)
    assert [path.relative_to(tmp_path).as_posix() for path in changed] == ["README.md", "results/mnist/README.md"]
    assert (tmp_path / "README.md").read_text() == (
        "before\n<!-- speed: by hand -->\n| a |\n| b |\n<!-- end of speed -->\nafter\n"
    )
    assert (tmp_path / "results/mnist/README.md").read_text() == (
        "<!-- why: x -->\nWords.\n<!-- end of why -->\n<!-- speed: x -->\n| a |\n| b |\n<!-- end of speed -->\n"
    )
    assert readme.update(tmp_path / "results", made) == []


def test_a_block_that_nobody_makes_is_named():
    with pytest.raises(UsageError, match="'faster'"):
        readme.fill("<!-- faster: x -->\n<!-- end of faster -->\n", {"speed": []})


def test_a_claim_is_a_row():
    found = Finding(Verdict("no", "5.00 ± 1.00"), NOT_POSSIBLE, "a | b")
    told = readme.claim_row(CLAIMS[0], found).split(" | ")
    assert told[0] == f"| [{CLAIMS[0].short}](results/mnist_pruning)"
    assert told[1:] == ["**no**: 5.00\u00a0±\u00a01.00", "not possible here", r"a \| b |"]
    assert readme.claim_row(CLAIMS[0], None).endswith("| not measured | - | - |")
