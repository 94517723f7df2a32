"""`--help` of whatever a user may start: it answers, and nothing imports TensorFlow for it."""

import json
import re
import subprocess
import sys

import pytest

from configs import cifar100_vit, mnist_pruning, vmoe, vmoe_clusters
from experiments.core import config
from scripts.bench.costs import ROOT, entry_points

EXPERIMENTS = {
    "mnist_pruning": mnist_pruning,
    "cifar100_vit": cifar100_vit,
    "vmoe": vmoe,
    "vmoe_clusters": vmoe_clusters,
}
# Seconds to import, and a backend that takes the device.
SLOW = ("tensorflow", "tensorflow_datasets", "torch")
# All in one process, as to start Python takes longer than to ask. What one imports stays for the next: the first that
# imports TensorFlow is named, and the others are not cleared by that.
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
def test_help_is_there_and_imports_no_tensorflow(asked, module):
    assert asked[module]["status"] == 0
    assert f"python -m {module}" in asked[module]["said"]
    assert asked[module]["slow"] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_of_an_experiment_has_the_file_its_docstring_and_every_field_and_variant(asked, name):
    said = asked[f"experiments.{name}"]["said"]
    assert f"--config=configs/{name}.py[:VARIANT]" in said
    assert EXPERIMENTS[name].__doc__.strip() in said
    assert said.endswith("\n".join(["", *config.lines(EXPERIMENTS[name].get_config()), ""]))
    for variant in [*getattr(EXPERIMENTS[name], "VARIANTS", ()), *getattr(EXPERIMENTS[name], "OPTIONS", ())]:
        assert re.search(rf"^(VARIANTS|OPTIONS): .*\b{variant}\b", said, re.MULTILINE)
