"""Sections are read by their place, and written without loss of any other, by processes at once, too."""

import json
import subprocess
import sys

import pytest

from experiments.core.errors import DamagedError
from scripts import sections


def test_a_section_is_replaced_and_the_others_are_left(tmp_path):
    path = tmp_path / "new" / "h200.json"
    assert sections.read(path) is None
    sections.write(path, {"a": 1}, "operators")
    sections.write(path, {"b": 2}, "steps", "vit")
    sections.write(path, {"c": 3}, "steps", "vmoe")
    sections.write(path, {"b": 4}, "steps", "vit")
    assert json.loads(path.read_text()) == {"operators": {"a": 1}, "steps": {"vit": {"b": 4}, "vmoe": {"c": 3}}}
    assert sections.read(path, "steps", "vit") == {"b": 4}
    assert sections.read(path, "losses", "small") is None
    path.write_text('{"operators"')
    with pytest.raises(DamagedError, match=r"h200\.json"):
        sections.write(path, {}, "steps")
    assert path.read_text() == '{"operators"'


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from scripts import sections\n"
        "for i in range(20): sections.write(Path(sys.argv[1]), {'i': i}, sys.argv[2], str(i))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cpu.json")]
    processes = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    assert [process.wait() for process in processes] == [0, 0]
    found = json.loads((tmp_path / "cpu.json").read_text())
    assert {name: len(section) for name, section in found.items()} == {"a": 20, "b": 20}
