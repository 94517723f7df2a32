"""A changed digit of a table is noticed; those committed are checked in CI by `make check-numbers`."""

import shutil

import pytest

from scripts import numbers


@pytest.mark.parametrize(
    ("results", "place"),
    [("cifar100_last_block", -1), ("learned_masks", 0)],  # the latter's first line has differences alone
)
def test_changed_table_digit_is_noticed(results, place, tmp_path, capsys):
    shutil.copytree(numbers.RESULTS / results, tmp_path, dirs_exist_ok=True)
    assert numbers.main([str(tmp_path)]) == 0
    table = (tmp_path / "table.md").read_text()
    one = numbers.intervals(table)[place]
    (tmp_path / "table.md").write_text(table.replace(one, one[:-1] + str((int(one[-1]) + 1) % 10), 1))
    assert numbers.main([str(tmp_path)]) == 1
    assert "no run has" in capsys.readouterr().out
