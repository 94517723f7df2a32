"""The sources of the documentation site hold together; `make docs` builds it, and runs the tutorials."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

import ops
from tests.docs.pages import DOCS, PAGES, ROOT, TUTORIALS, directives, name_of

MODULES = {"ops": ops, "ops.isotonic": ops.isotonic, "ops.baselines": ops.baselines, "ops.pruning": ops.pruning}


def cells(path):
    return directives(path.read_text(), "code-cell")


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_use_what_is_public(path):
    """Their names are those of the library that users may use; `make docs` runs them."""
    tree = ast.parse("\n".join(cells(path)), str(path))
    of_library = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in MODULES]
    assert of_library
    for node in of_library:
        assert {alias.name for alias in node.names} <= set(dir(MODULES[node.module])), ast.unparse(node)


def test_the_reference_has_all_that_is_public_and_no_more():
    documented = []
    for path in sorted((DOCS / "api").glob("*.md")):
        module = None
        for kind, name in re.findall(r"^\.\. (\w+):: ([\w.]+)$", path.read_text(), re.MULTILINE):
            if kind == "currentmodule":
                module = name
            else:
                assert hasattr(MODULES[module], name), f"{module}.{name} in {path.name}"
                documented.append(getattr(MODULES[module], name))
    public = [getattr(module, name) for module in MODULES.values() for name in dir(module)]
    wanted = {id(thing): thing for thing in public if thing not in MODULES.values()}
    assert {id(thing) for thing in documented} == set(wanted)
    assert len(documented) == len(wanted), "documented twice"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_and_includes_lead_somewhere(path):
    text = path.read_text()
    files = [link for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in link]
    for file in files:
        assert (path.parent / file).exists(), file
    for file in re.findall(r"^```\{include\} (.*)$", text, re.MULTILINE):
        assert (path.parent / file).exists(), file
    for file in re.findall(r"^:link: (.*)$", text, re.MULTILINE):
        assert (path.parent / f"{file}.md").exists(), file


@pytest.fixture(scope="module")
def including():
    spec = importlib.util.spec_from_file_location("including", DOCS / "including.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_that_are_pages_are_there(including):
    for file, page in including.PAGES.items():
        assert (ROOT / file).exists(), file
        assert DOCS / f"{page}.md" in PAGES, page
    for part, page in including.PARTS.items():
        assert DOCS / f"{page}.md" in PAGES, part


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        ("../../ops/README.md", "/choosing.md"),
        ("../../ops/README.md#speed-of-the-solvers", "/results/benchmarks.md#speed-of-the-solvers"),
        ("../mnist_pruning", "/results/mnist_pruning.md"),
        ("../figures/figure4.svg", "../../results/figures/figure4.svg"),
        ("cpu.json", "../../results/bench/cpu.json"),
        ("https://example.org/README.md", "https://example.org/README.md"),
        ("#below", "#below"),
    ],
)
def test_links_of_files_that_a_page_includes(including, link, becomes):
    assert including.link_from(Path("results/bench/README.md"), link, Path("docs/results/benchmarks.md")) == becomes


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("from ops import topk_mask", "from lib import topk_mask"),
        ("from ops.baselines import x", "from lib.baselines import x"),
        (".. currentmodule:: ops", ".. currentmodule:: lib"),
        ("`ops` has, dir(ops), `ops.isotonic`", "`lib` has, dir(lib), `lib.isotonic`"),
        ("ops/README.md, tests/ops/test_x.py, drops, my_ops", "ops/README.md, tests/ops/test_x.py, drops, my_ops"),
    ],
)
def test_one_name_stands_for_the_library(including, text, becomes):
    assert including.rename(text, "lib") == becomes
