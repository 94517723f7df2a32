"""The library as it is installed: built, unpacked far from the checkout, and used under its own name."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import ops

ROOT = Path(__file__).resolve().parents[1]

USE = """
import doctest, importlib.metadata, sys
sys.path.insert(0, {site!r})
import sparse_topk
assert sparse_topk.__file__.startswith({site!r}), sparse_topk.__file__
assert importlib.metadata.version("sparse-topk") == sparse_topk.__version__
page = doctest.DocTestParser().get_doctest(open({page!r}).read(), {{}}, "README", None, 0)
assert page.examples
failed = doctest.DocTestRunner(verbose=False).run(page).failed
foreign = {{"ops", "flax", "optax", "ml_collections", "experiments", "scipy"}} & set(sys.modules)
assert not foreign, foreign
sys.exit(failed)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    return folder


def test_the_wheel_holds_the_library_and_its_licence_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"sparse_topk-{ops.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"sparse_topk-{ops.__version__}.dist-info/METADATA").decode()
    library = {name for name in names if ".dist-info/" not in name}
    sources = [path for path in (ROOT / "ops").rglob("*") if path.suffix in (".py", ".typed")]
    assert library == {f"sparse_topk/{path.relative_to(ROOT / 'ops')}" for path in sources}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    needed = re.findall(r"^Requires-Dist: (\S+?)[ ;>=<~]", metadata, re.MULTILINE)
    assert [name for name in needed if f"{name}" in ("jax", "numpy")] == ["jax", "numpy"]
    assert not re.search(r"^Requires-Dist: (?!jax|numpy|.*extra ==)", metadata, re.MULTILINE)


def test_the_source_distribution_builds_the_same_and_has_no_experiments(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = [name.partition("/")[2] for name in opened.getnames()]
    assert {"pyproject.toml", "LICENSE", "ops/__init__.py", "ops/py.typed"} <= set(names)
    tops = {name.partition("/")[0] for name in names}
    assert tops <= {"ops", "pyproject.toml", "hatch_build.py", "LICENSE", "PKG-INFO", ".gitignore"}


@pytest.fixture(scope="module")
def site(built, tmp_path_factory):
    """The folder where the wheel is installed."""
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run_elsewhere(code, folder):
    """Isolated: neither the folder it is started in nor PYTHONPATH lead back to the checkout."""
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_installed_elsewhere_it_does_what_its_page_says(site, tmp_path):
    (metadata,) = site.glob("*.dist-info/METADATA")
    text = metadata.read_text().partition("\n\n")[2]
    assert "from sparse_topk import" in text
    assert not re.search(r"(from|import) ops\b|`ops\.", text)
    page = tmp_path / "page.md"
    page.write_text(text)
    run_elsewhere(USE.format(site=str(site), page=str(page)), tmp_path)


def test_the_library_names_no_import_of_its_own_by_where_it_lies():
    absolute = re.compile(r"^\s*(from|import) ops\b", re.MULTILINE)
    assert not [path for path in (ROOT / "ops").rglob("*.py") if absolute.search(path.read_text())]
