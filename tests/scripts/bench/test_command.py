import json

import pytest

from experiments.core.errors import UsageError
from scripts.bench import __main__ as command
from scripts.bench.process import Case, FailedError, Group
from scripts.bench.timing import Contest

ENVIRONMENT = {
    "code": "abc",
    "packages": {"jax": "1"},
    "devices": {"platform": "gpu", "kind": "NVIDIA H200"},
    "machine": {"cpu": None, "cores": 2},
}


@pytest.fixture
def measured(monkeypatch):
    """The cases that were measured, on a GPU; those in `broken` fail."""
    names, broken = [], set()

    def case(name):
        def measure(contest):
            names.append(name)
            if name in broken:
                raise FailedError("it ended")
            return {"rows": [{"way": name, "median_ms": 2.0, "ratio_to": {"other": 0.5}}], "failed": contest.failed}

        return Case(name, measure, minutes=4.0)

    def isolated(measure, minutes=None):
        return ENVIRONMENT if "surroundings" in str(measure) else measure(Contest())

    groups = {"steps": ["a", "b"], "masks": ["c"]}

    def group_of(name, scale):
        return Group({"scale": scale}, [*map(case, groups[name])])

    monkeypatch.setattr(command, "GROUPS", groups)
    monkeypatch.setattr(command, "group_of", group_of)
    monkeypatch.setattr(command, "DEVICE", ("steps", "masks"))
    monkeypatch.setattr(command, "isolated", isolated)
    return names, broken


def test_recorded_sections_are_skipped(measured, tmp_path, capsys):
    names, _ = measured
    results = f"--results={tmp_path}"
    assert command.main(["--only=steps", results]) == 0
    assert "'median_ms': 2.0, 'ratio_to': {'other': 0.5}" in capsys.readouterr().out
    assert command.main(["--device", results]) == 0
    assert names == ["a", "b", "c"]
    record = json.loads((tmp_path / "gpu-nvidia-h200.json").read_text())
    assert set(record) == {"steps", "masks"}
    assert record["steps"]["settings"] == {"scale": "device"}


def test_failed_case_does_not_stop_others(measured, tmp_path, capsys):
    names, broken = measured
    broken.add("a")
    assert command.main([f"--results={tmp_path}"]) == 1
    assert names == ["a", "b", "c"]
    assert "failed: steps: a: it ended" in capsys.readouterr().err
    record = json.loads((tmp_path / "gpu-nvidia-h200.json").read_text())
    assert record["partial-steps"]["failed"] == {"a": "it ended"}
    assert [row["way"] for row in record["partial-steps"]["rows"]] == ["b"]


def test_no_case_starts_without_enough_time(measured, tmp_path, capsys):
    names, _ = measured
    assert command.main(["--minutes=3", f"--results={tmp_path}"]) == 0
    assert names == []
    assert "no time is left for steps, a (4 minutes)" in capsys.readouterr().out


def test_small_run_writes_only_if_asked(measured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--small"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert command.main(["--small", "--results=here"]) == 0
    assert set(json.loads((tmp_path / "here/gpu-nvidia-h200.json").read_text())) == {"steps-small", "masks-small"}


def test_device_sizes_are_refused_on_cpu(measured, monkeypatch, tmp_path):
    names, _ = measured
    monkeypatch.setitem(ENVIRONMENT, "devices", {"platform": "cpu", "kind": "cpu"})
    with pytest.raises(UsageError, match="a CPU only"):
        command.main(["--device", f"--results={tmp_path}"])
    assert command.main(["--device", "--small", f"--results={tmp_path}"]) == 0
    assert names == ["a", "b", "c"]


def test_unknown_section_is_rejected(measured):
    with pytest.raises(UsageError, match="--only: unknown kitchen; known: steps, masks"):
        command.main(["--only=steps,kitchen"])
