"""The documentation: names and signatures, examples in docstrings, the table of `ops/README.md`."""

import doctest
import inspect
import operator
import re
from pathlib import Path

import pytest

import ops
from ops import baselines, isotonic, pruning
from ops.baselines import coding, gates

PACKAGES = {
    "ops": ops,
    "ops.isotonic": isotonic,
    "ops.baselines": baselines,
    "ops.baselines.coding": coding,
    "ops.baselines.gates": gates,
    "ops.pruning": pruning,
}
# A sample of a random number is no example.
WITHOUT = {"sample_binary_concrete", "sample_gates"}


def functions(package):
    public = {name: getattr(package, name) for name in package.__all__}
    return [name for name, value in public.items() if inspect.isfunction(value) or ">>>" in (value.__doc__ or "")]


def symbols(package):
    return [name for name in PACKAGES[package].__all__ if not inspect.ismodule(getattr(PACKAGES[package], name))]


@pytest.mark.parametrize(
    ("package", "function"),
    [(package, function) for package in PACKAGES for function in functions(PACKAGES[package])],
)
def test_public_docstring_examples_run(package, function):
    value = getattr(PACKAGES[package], function)
    (found,) = doctest.DocTestFinder(recurse=False).find(value, function, globs=vars(inspect.getmodule(value)) | {})
    assert found.examples or function in WITHOUT, function
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


@pytest.mark.parametrize(("package", "symbol"), [(package, name) for package in PACKAGES for name in symbols(package)])
def test_see_also_names_what_there_is(package, symbol):
    section = re.search(r"^See also:\n((?:  .*\n?)+)", inspect.getdoc(getattr(PACKAGES[package], symbol)), re.MULTILINE)
    names = re.findall(r"(?<!`)`([\w.]+)`", section[1])
    assert names
    for name in names:  # found as Sphinx finds it: in the module of the symbol, or by its whole name
        start = ops if name.startswith("sparse_topk.") else PACKAGES[package]
        assert operator.attrgetter(name.removeprefix("sparse_topk."))(start)


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_what_users_may_use(name):
    package = PACKAGES[name]
    shown = [entry for entry in dir(package) if not entry.startswith("_")]
    assert sorted(shown) == sorted(package.__all__)


def _described(package, prefix):
    for name in sorted(package.__all__):
        value = getattr(package, name)
        if inspect.ismodule(value):
            yield from _described(value, f"{prefix}{name}.")
        elif callable(value):
            parameters = inspect.signature(value).parameters.values()
            bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
            yield f"{prefix}{name}{inspect.Signature(bare)}"
        else:
            yield f"{prefix}{name}"


def test_public_api_matches_api_txt():
    assert list(_described(ops, "")) == (Path(__file__).parent / "api.txt").read_text().splitlines()


_ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| `(?P<function>[\w.]+)`[^|]* \| `(?P<test>[\w/.:\[\]-]+)` \|$", re.MULTILINE)


def test_paper_table_names_what_exists():
    root = Path(__file__).parents[2]
    section = (root / "ops" / "README.md").read_text().partition("## From the paper")[2].partition("\n## ")[0]
    table = [match.groupdict() for match in _ROW.finditer(section)]
    assert len(table) == sum(line.startswith("| ") for line in section.splitlines()) - 2  # all but the heading
    known = vars(isotonic) | vars(baselines) | vars(ops)
    for row in table:
        assert callable(known[row["function"]]), row
        path, _, name = row["test"].partition("::")
        assert f"def {name}(" in (root / path).read_text(), row
