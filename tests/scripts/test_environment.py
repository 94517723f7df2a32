"""Which Python `make` takes for an environment, tried with fakes of Python, pyenv and uv."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/bash
case "$*" in
    *"version_info[:2] != "*) [[ "$*" == *"(3, {minor}))"* ]] ;;
    *"print("*) echo 3.{minor} ;;
    "-m venv "*) mkdir -p "$3/bin" && echo "{name}" > "$3/made_by" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/uv" ;;
    *) echo "$*" >> "$(dirname "$0")/asked" ;;
esac
"""
SHIM = "#!/bin/bash\necho 'pyenv: python: command not found' >&2\nexit 127\n"


@pytest.fixture
def make_environment(tmp_path):
    def program(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(commands=(), pyenv=(), shims=(), chosen=""):
        for name, minor in dict(commands).items():
            program(tmp_path / "bin" / name, PYTHON.format(name=name, minor=minor))
        for version in pyenv:
            name, minor = f"pyenv {version}", version.split(".")[1]
            path = tmp_path / ".pyenv" / "versions" / version / "bin" / "python"
            program(path, PYTHON.format(name=name, minor=minor))
        for name in shims:
            program(tmp_path / "bin" / name, SHIM)
        environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.defpath}", "PYTHON": chosen}
        command = ["bash", ROOT / "scripts" / "environment.sh", tmp_path / "venv", "-r", "requirements.txt"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ({"commands": {"python3": 11}, "shims": ["python3.13"], "pyenv": ["3.12.1", "3.13.0"]}, "pyenv 3.13.0"),
        ({"commands": {"python3": 14, "python3.14": 14, "python3.12": 12}, "shims": ["python3.13"]}, "python3.12"),
        ({"commands": {"python3.13": 13, "mine": 12}, "chosen": "mine"}, "mine"),
    ],
)
def test_newest_supported_python_is_taken(make_environment, tmp_path, found, taken):
    """Skips a shim of pyenv that does not work; PYTHON overrides the choice."""
    done = make_environment(**found)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "venv" / "made_by").read_text() == f"{taken}\n"
    assert "--constraint requirements-lock.txt -r requirements.txt" in (tmp_path / "venv/bin/asked").read_text()


def test_unsupported_python_is_refused(make_environment, tmp_path):
    done = make_environment({"python3": 10}, shims=["python3.13", "python3.12", "python3.11"])
    assert (done.returncode, "3.10" in done.stderr.splitlines()[-1]) == (1, True)
    assert not (tmp_path / "venv").exists()
