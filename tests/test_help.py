"""`--help` of whatever a user may start: it answers at once, as nothing is imported that computes."""

import json
import re
import subprocess
import sys

import pytest

from configs import cifar100_vit, mnist_pruning, vmoe, vmoe_clusters
from scripts.bench.help import LIMIT_SECONDS, ROOT, ask, entry_points

EXPERIMENTS = {
    "mnist_pruning": mnist_pruning,
    "cifar100_vit": cifar100_vit,
    "vmoe": vmoe,
    "vmoe_clusters": vmoe_clusters,
}
SLOW = ("jax", "flax", "optax", "orbax", "scipy", "tensorflow", "tensorflow_datasets", "sklearn")
# All in one process, as to start Python takes longer than to ask. What one imports stays for the next: the first that
# imports what computes is named, and the others are not cleared by that.
ASK_ALL = """
import contextlib, io, json, runpy, sys
slow, modules = set(sys.argv[1].split()), sys.argv[2:]
found = {}
for module in modules:
    sys.argv = [module, "--help"]
    status, before = None, set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code or 0
    found[module] = {"said": out.getvalue(), "status": status, "slow": sorted(slow & (set(sys.modules) - before))}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def asked():
    """Of every entry point, what it says, how it ends, and what it imports of what is slow."""
    command = [sys.executable, "-c", ASK_ALL, " ".join(SLOW), *entry_points()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", entry_points())
def test_help_is_there_and_imports_nothing_that_computes(asked, module):
    assert asked[module]["status"] == 0
    assert f"python -m {module}" in asked[module]["said"]
    assert asked[module]["slow"] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_of_an_experiment_comes_soon_and_has_every_field_variant_and_default(name):
    said, processor_seconds = ask(f"experiments.{name}")
    assert processor_seconds < LIMIT_SECONDS
    for field, value in leaves(EXPERIMENTS[name].get_config().to_dict()):
        assert f"\n  {field} = {value!r}" in said
    for variant in getattr(EXPERIMENTS[name], "VARIANTS", {}):
        assert re.search(rf"\b{variant}\b", said)
    for option, default in getattr(EXPERIMENTS[name], "OPTIONS", {}).items():
        assert re.search(rf"\n  {option}={default}\s", said)


def leaves(node, prefix=""):
    for name, value in node.items():
        yield from leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
