"""`--help` of whatever a user may start: it answers at once, as nothing is imported that computes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from configs import cifar100_vit, mnist_pruning, vmoe, vmoe_clusters

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = {
    "mnist_pruning": mnist_pruning,
    "cifar100_vit": cifar100_vit,
    "vmoe": vmoe,
    "vmoe_clusters": vmoe_clusters,
}
SLOW = ("jax", "flax", "optax", "orbax", "scipy", "tensorflow", "tensorflow_datasets", "sklearn")


def entry_points():
    """The modules that can be run: packages with a `__main__`, and what the Makefile runs."""
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("experiments", "scripts")
        for path in (ROOT / top).glob("**/__main__.py")
    }
    made = re.findall(r"(?:\$\(RUN\)|/python -m) ((?:experiments|scripts)[\w.]+)", (ROOT / "Makefile").read_text())
    return sorted(packages | set(made))


def help_of(module, *options):
    """What it prints, and the names of all modules that it imports."""
    command = [sys.executable, "-X", "importtime", "-m", module, *options, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize("module", entry_points())
def test_help_is_there_and_imports_nothing_that_computes(module):
    said, imported = help_of(module)
    assert f"python -m {module}" in said
    assert "argparse" in imported
    assert not imported & set(SLOW)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_of_an_experiment_has_every_field_variant_and_default(name):
    said, _ = help_of(f"experiments.{name}")
    for field, value in leaves(EXPERIMENTS[name].get_config().to_dict()):
        assert f"\n  {field} = {value!r}" in said
    for variant in getattr(EXPERIMENTS[name], "VARIANTS", {}):
        assert re.search(rf"\b{variant}\b", said)
    for option, default in getattr(EXPERIMENTS[name], "OPTIONS", {}).items():
        assert re.search(rf"\n  {option}={default}\s", said)


def leaves(node, prefix=""):
    for name, value in node.items():
        yield from leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
