"""What is sent out is a commit: not what happens to lie there, and nothing that a commit lacks."""

import subprocess
import tarfile
from types import SimpleNamespace

import pytest

from experiments.core.errors import UsageError
from scripts.launch import code
from scripts.launch.process import Console, Failed


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("configs/a.py", "results/table.md", "tests/test_a.py"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("1\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    monkeypatch.setattr(code.tempfile, "gettempdir", lambda: str(tmp_path / "results"))
    return tmp_path


def code_of(commit, config):
    return code.Code.of(SimpleNamespace(commit=commit, config=config, prepare=None))


def test_pack_omits_results_and_tests(repository, monkeypatch):
    packed = code_of(None, "configs/a.py:variant")
    packed.pack(Console())
    with tarfile.open(packed.archive) as archive:
        assert [member.name for member in archive if member.isfile()] == ["configs/a.py"]
    assert packed.directory == f"sparse-topk/{packed.commit[:12]}"
    monkeypatch.setattr(code.Code, "archive", repository / "nowhere" / "a.tar.gz")
    with pytest.raises(Failed, match=r"^git: "):
        packed.pack(Console())


def test_changes_are_not_left_behind_unasked(repository):
    (repository / "results" / "table.md").write_text("another\n")  # of results that are being made
    code_of(None, "configs/a.py")
    (repository / "configs" / "b.py").write_text("1\n")
    with pytest.raises(UsageError, match=r"1 files are changed or new .*configs/b.py.* --commit=HEAD"):
        code_of(None, "configs/b.py")
    with pytest.raises(UsageError, match=r"--config=configs/b.py:x: there is no such file in commit"):
        code_of("HEAD", "configs/b.py:x")
    code_of("HEAD", "configs/a.py")


def test_a_commit_that_is_none_is_refused(repository):
    with pytest.raises(UsageError, match="--commit=nowhere: there is no such commit"):
        code_of("nowhere", "configs/a.py")
