"""`--help` of whatever a user may start: it answers, and nothing imports TensorFlow for it."""

import json
import re
import subprocess
import sys

import pytest

from tests.experiments.support import ROOT

PACKAGES = [path.parent for top in ("experiments", "scripts") for path in (ROOT / top).glob("**/__main__.py")]
RUN = r"(?:\$\(RUN\)|/python -m) ((?:experiments|scripts)[\w.]+)"  # in the Makefile
STARTED = {
    *(".".join(path.relative_to(ROOT).parts) for path in PACKAGES),
    *re.findall(RUN, (ROOT / "Makefile").read_text()),
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
    command = [sys.executable, "-c", ASK_ALL, " ".join(SLOW), *STARTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", sorted(STARTED))
def test_help_imports_no_slow_packages(asked, module):
    assert asked[module]["status"] == 0
    assert f"python -m {module}" in asked[module]["said"]
    assert asked[module]["slow"] == []
