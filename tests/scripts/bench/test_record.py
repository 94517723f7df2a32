import copy
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiments.core.errors import DamagedError
from scripts.bench import record

MACHINE = {"cpu": "AMD EPYC 9B14 (TM)", "cores": 2}
HERE = {
    "code": "abc",
    "packages": {"jax": "1"},
    "devices": {"platform": "cpu", "kind": "cpu"},
    "machine": MACHINE,
    "command": ["one"],
}
SETTINGS = {"sizes": (1, 2)}


@pytest.fixture
def path(tmp_path):
    return record.path_of(tmp_path, HERE)


def test_a_file_is_named_by_the_hardware(tmp_path):
    gpu = {"devices": {"platform": "gpu", "kind": "NVIDIA H100 80GB HBM3"}, "machine": MACHINE}
    assert record.path_of(tmp_path, HERE).name == "cpu-amd-epyc-9b14-tm-2c.json"
    assert record.path_of(tmp_path, gpu).name == "gpu-nvidia-h100-80gb-hbm3.json"


def test_partial_section_is_resumed(path):
    section = record.begin(path, "masks", HERE, SETTINGS)
    record.add(section, "one", {"cases": [1], "medians": {"a": 1}, "images": "noise"})
    record.write(path, "masks", section)
    assert list(json.loads(path.read_text())) == ["partial-masks"]
    section = record.begin(path, "masks", HERE | {"command": ["another"]}, SETTINGS)
    assert section["measured"] == ["one"]
    record.add(section, "two", {"cases": [2], "medians": {"b": 2}})
    section["complete"] = True
    record.write(path, "masks", section)
    (name, whole), *others = json.loads(path.read_text()).items()
    assert (name, others, whole["measured"]) == ("masks", [], ["one", "two"])
    assert (whole["cases"], whole["medians"], whole["images"]) == ([1, 2], {"a": 1, "b": 2}, "noise")
    assert len(whole["environment"]["load_average"]["after"]) == 3
    assert record.begin(path, "masks", HERE, SETTINGS)["complete"]


@pytest.mark.parametrize(
    ("changed", "settings"),
    [
        ({"code": "abd"}, SETTINGS),
        ({"devices": {"platform": "cpu", "kind": "x"}}, SETTINGS),
        ({}, {"sizes": (1, 3)}),
    ],
)
def test_results_of_other_setups_are_ignored(path, changed, settings):
    section = record.begin(path, "masks", HERE, SETTINGS)
    record.add(section, "one", {})
    record.write(path, "masks", section)
    assert record.begin(path, "masks", HERE | changed, settings)["measured"] == []


def test_writers_at_once_lose_nothing(path):
    section = record.begin(path, "masks", HERE, SETTINGS)
    names = [f"section {number}" for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: record.write(path, name, copy.deepcopy(section)), names))
    assert json.loads(path.read_text()).keys() == {f"partial-{name}" for name in names}
    path.write_text('{"masks"')
    with pytest.raises(DamagedError, match=path.name):
        record.write(path, "masks", section)
    assert path.read_text() == '{"masks"'
