"""A changed digit of a table is noticed; those committed are checked in CI by `make check-numbers`."""

import shutil

from scripts import numbers

SMALL = numbers.RESULTS / "cifar100_last_block"


def test_a_table_is_that_of_its_runs_and_no_digit_may_change(tmp_path, capsys):
    for name in ("runs.jsonl", "table.md"):
        shutil.copy(SMALL / name, tmp_path)
    for part in ("sweep", "paper"):
        shutil.copytree(SMALL / part, tmp_path / part)
    assert numbers.main([str(tmp_path)]) == 0
    table = (tmp_path / "table.md").read_text()
    last = numbers.intervals(table)[-1]
    (tmp_path / "table.md").write_text(table.replace(last, last[:-1] + str((int(last[-1]) + 1) % 10)))
    assert numbers.main([str(tmp_path)]) == 1
    assert "no run has" in capsys.readouterr().out
