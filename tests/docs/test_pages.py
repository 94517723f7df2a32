"""The sources of the documentation site hold together; `make docs` builds it, and runs the tutorials."""

import doctest
import re

import jax
import pytest
import sparse_topk
from sparse_topk import baselines, isotonic, pruning

from tests.docs.pages import DOCS, MADE, PAGES, ROOT, WRITTEN, name_of

MODULES = {
    "sparse_topk": sparse_topk,
    "sparse_topk.isotonic": isotonic,
    "sparse_topk.baselines": baselines,
    "sparse_topk.baselines.coding": baselines.coding,
    "sparse_topk.baselines.gates": baselines.gates,
    "sparse_topk.pruning": pruning,
}
CODE = re.compile(r"^```(?:python|\{code-cell\})\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_reference_lists_exactly_public_api():
    documented = []
    for path in sorted((DOCS / "api").glob("*.md")):
        module = None
        for owner, name in re.findall(r"^\.\. currentmodule:: (\S+)$|^   (\w+)$", path.read_text(), re.MULTILINE):
            module = owner or module
            if name:
                assert hasattr(MODULES[module], name), f"{module}.{name} in {path.name}"
                documented.append(getattr(MODULES[module], name))
    public = [getattr(module, name) for module in MODULES.values() for name in dir(module)]
    wanted = {id(thing): thing for thing in public if thing not in MODULES.values()}
    assert {id(thing) for thing in documented} == set(wanted)
    assert len(documented) == len(wanted), "documented twice"


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_links_and_includes_lead_somewhere(path):
    text = path.read_text()
    files = [link for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in link]
    files += re.findall(r"^```\{include\} (.*)$", text, re.MULTILINE)
    files += [f"{page}.md" for page in re.findall(r"^:link: (.*)$", text, re.MULTILINE)]
    lost = [file for file in files if not (path.parent / file).exists()]
    assert [file for file in lost if (path.parent / file).resolve() not in MADE] == []
    for file, options in re.findall(r"^```\{include\} (.*)\n((?::.*\n)*)", text, re.MULTILINE):
        for passage in re.findall(r'^:(?:start-after|end-before): "?(.*?)"?$', options, re.MULTILINE):
            assert passage in (path.parent / file).read_text(), f"{passage!r} is not in {file}"


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "ops" / "README.md", *WRITTEN],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_code_imports_what_users_install(path):
    code = "\n".join(CODE.findall(path.read_text())).replace(">>> ", "")
    imports = re.findall(r"^(?:from|import) (?:ops|sparse_topk)\b.*$", code, re.MULTILINE)
    assert [line for line in imports if "sparse_topk" not in line] == []
    exec("\n".join(imports), {})


def test_nnx_page_passes_doctest():
    with jax.numpy_dtype_promotion("standard"):  # which optax.adam needs
        assert not doctest.testfile(str(DOCS / "how_to" / "nnx.md"), module_relative=False).failed


def test_archives_are_read_as_shown(monkeypatch):
    """Takes a smaller archive than the page does."""
    monkeypatch.chdir(ROOT)
    (code,) = CODE.findall((DOCS / "how_to" / "archive.md").read_text())
    exec(code.replace("results/mnist_pruning", "results/cifar100_pruning"), names := {})
    assert names["problems"] == []
    assert names["frame"]["test_error"].between(0, 100).all()


def test_links_of_llms_txt_lead_to_pages():
    links = re.findall(r"\]\((.*?)\.html\)", (DOCS / "llms.txt").read_text())
    assert links
    assert set(links) <= {name_of(path) for path in PAGES}


def test_no_line_starts_as_a_myst_comment():
    """MyST leaves out lines that begin with a percent sign, as a wrapped one may."""
    texts = {path: path.read_text().splitlines() for path in [*WRITTEN, *(ROOT / "results").rglob("README.md")]}
    assert [(path.name, line) for path, lines in texts.items() for line in lines if re.match(r"\s*%", line)] == []


def test_every_page_of_results_is_listed():
    listed = (DOCS / "results" / "index.md").read_text().split()
    assert {path.stem for path in MADE if not path.stem.endswith("_table")} <= set(listed)
