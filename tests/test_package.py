"""The library as it is installed: built, unpacked far from the checkout, and used under its own name."""

import re
import subprocess
import sys
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
    """The folder with the wheel."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
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
    assert needed[:2] == ["jax", "numpy"]
    assert not re.search(r"^Requires-Dist: (?!jax|numpy|.*extra ==)", metadata, re.MULTILINE)


def test_installed_elsewhere_it_does_what_its_page_says(built, tmp_path):
    """Isolated: neither the folder it is started in nor PYTHONPATH lead back to the checkout."""
    site, page = tmp_path / "site", tmp_path / "page.md"
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("*.dist-info/METADATA")
    text = metadata.read_text().partition("\n\n")[2]
    assert "from sparse_topk import" in text
    assert not re.search(r"(from|import) ops\b|`ops\.", text)
    page.write_text(text)
    code = USE.format(site=str(site), page=str(page))
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
