"""The examples in docstrings: every public function has one, and it does what it says."""

import doctest
import inspect

import pytest

import ops
from ops import baselines, isotonic, pruning

PACKAGES = {"ops": ops, "ops.isotonic": isotonic, "ops.baselines": baselines, "ops.pruning": pruning}
# A sample of a random number is no example.
WITHOUT = {"sample_binary_concrete", "sample_gates"}


def functions(package):
    public = {name: getattr(package, name) for name in package.__all__}
    return [name for name, value in public.items() if inspect.isfunction(value) or ">>>" in (value.__doc__ or "")]


@pytest.mark.parametrize(
    ("package", "function"),
    [(package, function) for package in PACKAGES for function in functions(PACKAGES[package])],
)
def test_public_functions_do_what_their_examples_say(package, function):
    value = getattr(PACKAGES[package], function)
    (found,) = doctest.DocTestFinder(recurse=False).find(value, function, globs=vars(inspect.getmodule(value)) | {})
    assert found.examples or function in WITHOUT, function
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_what_users_may_use(name):
    package = PACKAGES[name]
    shown = [entry for entry in dir(package) if not entry.startswith("_")]
    assert sorted(shown) == sorted(package.__all__)
