"""The library as it is installed: built, installed far from the checkout, and as a name of a checkout's folder."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_editable

import ops

ROOT = Path(__file__).resolve().parents[1]

USE = """
import doctest, importlib.metadata, sys
site, *pages = {arguments!r}
sys.path.insert(0, site)
import sparse_topk
assert sparse_topk.__file__.startswith(site), sparse_topk.__file__
assert importlib.metadata.version("sparse-topk") == sparse_topk.__version__
for page in pages:
    examples = doctest.DocTestParser().get_doctest(open(page).read(), {{}}, page, None, 0)
    assert examples.examples
    assert not doctest.DocTestRunner(verbose=False).run(examples).failed
foreign = {{"ops", "flax", "optax", "ml_collections", "experiments", "scipy"}} & set(sys.modules)
foreign |= {{"jax.experimental.pallas"}} & set(sys.modules)  # half a second, for kernels alone
assert not foreign, foreign
"""
# Under both names, in both orders, what is imported late (kernels) as well as early.
BOTH = """
import site
site.addsitedir({folder!r})
import {first}.pruning, {second}.pruning
import {second}.scalar.kernels.gpu, {first}.scalar.kernels.gpu
assert {first} is {second}
assert {first}.pruning.Scored is {second}.pruning.Scored
assert {first}.scalar.kernels.gpu is {second}.scalar.kernels.gpu
assert ops.__file__ == {source!r}, ops.__file__
"""
COPIES = "import sys; sys.path[:0] = {path!r}; import {first}, {second}"
ORDERS = pytest.mark.parametrize(("first", "second"), [("ops", "sparse_topk"), ("sparse_topk", "ops")])


def run(code, folder):
    """Runs code isolated: neither the folder it is started in nor PYTHONPATH lead back to the checkout."""
    return subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_wheel_holds_only_the_library(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"sparse_topk-{ops.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"sparse_topk-{ops.__version__}.dist-info/METADATA").decode()
    library = {name for name in names if ".dist-info/" not in name}
    sources = [path for path in (ROOT / "ops").rglob("*") if path.suffix in (".py", ".typed")]
    assert library == {f"sparse_topk/{path.relative_to(ROOT / 'ops')}" for path in sources}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert re.findall(r"^Requires-Dist: ([\w-]+)", metadata, re.MULTILINE) == ["jax", "numpy"]


@pytest.fixture(scope="module")
def site(built, tmp_path_factory):
    """The folder into which the wheel is installed."""
    folder, (wheel,) = tmp_path_factory.mktemp("site"), built.glob("*.whl")
    install = [
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--target",
        folder,
        wheel,
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    return folder


def test_installed_it_does_what_pages_say(site, tmp_path):
    page, (metadata,) = tmp_path / "page.md", site.glob("*.dist-info/METADATA")
    page.write_text(metadata.read_text().partition("\n\n")[2])
    assert page.read_text() == (ROOT / "ops" / "README.md").read_text()
    done = run(USE.format(arguments=[str(site), str(page), str(ROOT / "README.md")]), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@ORDERS
def test_an_editable_install_is_one_package(tmp_path, monkeypatch, first, second):
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build_editable(str(tmp_path))) as archive:
        archive.extractall(tmp_path)
    code = BOTH.format(folder=str(tmp_path), first=first, second=second, source=ops.__file__)
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


@ORDERS
def test_a_second_copy_is_refused(site, tmp_path, first, second):
    done = run(COPIES.format(path=[str(site), str(ROOT)], first=first, second=second), tmp_path)
    assert f"ImportError: {second} is a second copy of {first}" in done.stderr
