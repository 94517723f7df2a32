"""The sources of the documentation site hold together; `make docs` builds it, and runs the tutorials."""

import re

import pytest

import ops
from ops import baselines
from tests.docs.pages import DOCS, PAGES, name_of

MODULES = {
    "ops": ops,
    "ops.isotonic": ops.isotonic,
    "ops.baselines": baselines,
    "ops.baselines.coding": baselines.coding,
    "ops.baselines.gates": baselines.gates,
    "ops.pruning": ops.pruning,
}


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
    files += re.findall(r"^```\{include\} (.*)$", text, re.MULTILINE)
    files += [f"{page}.md" for page in re.findall(r"^:link: (.*)$", text, re.MULTILINE)]
    assert [file for file in files if not (path.parent / file).exists()] == []
    for file, options in re.findall(r"^```\{include\} (.*)\n((?::.*\n)*)", text, re.MULTILINE):
        for passage in re.findall(r'^:(?:start-after|end-before): "?(.*?)"?$', options, re.MULTILINE):
            assert passage in (path.parent / file).read_text(), f"{passage!r} is not in {file}"
