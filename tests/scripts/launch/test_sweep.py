"""Sweeps: their points, the names of these, and what is no sweep."""

import re

import pytest

from experiments.core.errors import UsageError
from scripts.launch.sweep import points


def test_points_are_product_of_values():
    assert points([]) == [("", ())]
    found = points(["config.lam.start=1e-4, 1e-3", "config.seeds=(0, 1),[2,3],a", "config.steps=range(2, 8, 3)"])
    assert len(found) == len(dict(found)) == 2 * 3 * 2
    name, overrides = found[0]
    assert re.fullmatch(r"lam.start=1e-4,seeds=0_1-[0-9a-f]{4},steps=2", name)
    assert overrides == ("--config.lam.start=1e-4", "--config.seeds=(0, 1)", "--config.steps=2")
    seeds = [overrides[1] for _, overrides in found[::2][:3]]
    assert seeds == ["--config.seeds=(0, 1)", "--config.seeds=[2,3]", "--config.seeds=a"]
    assert found[-1][1][2] == "--config.steps=5"


def test_similar_values_have_unique_names():
    names = [name for name, _ in points(["config.note=a b,a/b,a_b,(),[]"])]
    assert len(set(names)) == 5
    assert names[2] == "note=a_b"
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789=_-") for name in names)


@pytest.mark.parametrize(
    "sweeps",
    [
        ["config.p"],
        ["p=1,2"],
        ["config.p=1,1"],
        ["config.p=1,,2"],
        ["config.p=(1,2"],
        ["config.p=1\n,2"],
        ["config.p=((1,2),3),(4,(5,6))"],
        ["config.p=range(0)"],
        ["config.p=range(1,2,0)"],
        ["config.p=1", "config.p=2"],
    ],
)
def test_what_is_no_sweep_is_refused(sweeps):
    with pytest.raises(UsageError, match="--sweep"):
        points(sweeps)
