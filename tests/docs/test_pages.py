"""The sources of the documentation site hold together; `make docs` builds it, and runs the tutorials."""

import ast
import builtins
import importlib.util
import re
from pathlib import Path

import pytest

import ops
from tests.docs.pages import DOCS, PAGES, ROOT, TUTORIALS, directives, name_of

MODULES = {"ops": ops, "ops.isotonic": ops.isotonic, "ops.baselines": ops.baselines, "ops.pruning": ops.pruning}


def listed(path):
    """The pages in the toctrees of a page."""
    for body in directives(path.read_text(), "toctree"):
        for line in body.splitlines():
            if line.strip() and not line.startswith(":"):
                yield name_of((path.parent / line.strip()).with_suffix(".md"))


def cells(path):
    return directives(path.read_text(), "code-cell")


def test_every_page_is_in_one_toctree():
    entries = [entry for path in PAGES for entry in listed(path)]
    assert sorted(entries) == sorted({name_of(path) for path in PAGES} - {"index"})


def test_the_words_of_the_glossary_are_those_that_are_used():
    _, _, *rows = re.findall(r"(?m)^\| (.+?) \| .+ \|$", (DOCS / "glossary.md").read_text())
    assert rows == sorted(rows)
    places = [("docs", "**/*.md"), ("ops", "*.md"), ("scripts", "**/*.md"), ("results", "*/*.md")]
    pages = [path for top, pattern in places for path in (ROOT / top).glob(pattern) if path.name != "glossary.md"]
    text = " ".join(" ".join(path.read_text().lower().split()) for path in pages)
    for word in ", ".join(rows).split(", "):
        assert word in text, f"{word!r} is in the glossary alone"


def test_there_are_tutorials():
    assert len(TUTORIALS) >= 7
    assert all(len(cells(path)) >= 5 for path in TUTORIALS)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_use_what_is_public(path):
    """Every cell is Python, every name of the library is one that users may use, and every name is defined before."""
    tree = ast.parse("\n".join(cells(path)), str(path))
    of_library = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in MODULES]
    assert of_library
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ops":
            assert node.module in MODULES, f"{node.module} is not public"
            assert {alias.name for alias in node.names} <= set(dir(MODULES[node.module])), ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert not any(alias.name.partition(".")[0] == "ops" for alias in node.names), (
                "from ops import what you use"
            )
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used <= bound | set(dir(builtins)), "names that nothing defines"
    imported = {alias.asname or alias.name for node in of_library for alias in node.names}
    assert imported <= used, "imported and not used"


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


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_the_marks_of_an_include_are_in_its_file_once(path):
    for file, body in re.findall(r"^```\{include\} (.*)\n((?::.*\n)*)```$", path.read_text(), re.MULTILINE):
        text = (path.parent / file).read_text()
        for mark in re.findall(r'^:(?:start-after|end-before): "(.*)"$', body, re.MULTILINE):
            assert text.count(mark) == 1, f"{mark!r} in {file}"


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


def test_the_runs_of_every_experiment_are_pages(including):
    for table in (ROOT / "results").glob("*/table.md"):
        for path in (table, table.with_name("README.md")):
            assert str(path.relative_to(ROOT)) in including.PAGES


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
