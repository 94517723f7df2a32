"""The lines that `tests/line_mutants.py` makes wrong exist, and are found once."""

import pytest

from tests.line_mutants import MUTANTS, ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}:{mutant.wrong[:24]}")
def test_the_line_is_there_once(mutant):
    assert mutant.text.count(mutant.line) == 1
    compile(mutant.text.replace(mutant.line, mutant.wrong), mutant.file, "exec")
    assert all((ROOT / path).exists() for path in mutant.tests.split())
