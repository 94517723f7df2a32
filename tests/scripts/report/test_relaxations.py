"""The tables of results/relaxations, a finished study whose code is gone, are what its committed records give."""

import json
import re

import pytest

from experiments.core.report.markdown import cell
from scripts.report import RESULTS

SECTIONS = re.split(r"(?m)^## ", (RESULTS / "relaxations" / "README.md").read_text())


def tables(title):
    """The tables of a section: by the first cell of each row, the others."""
    section = next(section for section in SECTIONS if section.startswith(f"{title}\n"))
    lines = [line.strip("| ").split(" | ") for line in re.findall(r"(?m)^\|.*\|$|^$", section)]
    found, rows = [], {}
    for first, *others in [*lines, [""]]:
        if first:
            rows[first] = others
        elif rows:
            found.append(dict(list(rows.items())[2:]))
            rows = {}
    return found


def records(machine, *names):
    known = json.loads((RESULTS / "bench" / f"cpu-{machine}.json").read_text())
    return [known[name] for name in names]


@pytest.fixture(scope="module")
def masks():
    """By width and mask, its numbers."""
    (record,) = records("intel-r-xeon-r-processor-2c", "relaxations")
    return {(each["width"], each["relaxation"]): each for each in record["masks"]}


def test_masks(masks):
    (table,) = tables("Masks")
    assert len(table) == 12
    for name, (_source, _zeros, *numbers) in table.items():
        found = masks[0.1, name]
        counts = [f"{found[field]:.1f}" for field in ("not_zero", "not_zero_float64")]
        assert numbers == [*counts, f"{found['distance']:.3f}"]


def test_gradients(masks):
    of_masks = ("norm_gaussian", "cosine_gaussian", "cosine_uniform", "gain")
    for width, fields, table in zip((0.1, 0.01), (of_masks, of_masks[1:]), tables("Gradients"), strict=True):
        assert len(table) == 14
        for noise in ("Gaussian", "uniform"):
            gains = masks[width, "sigmoid"][f"gain_of_{noise.lower()}"]["per_seed"]
            assert table.pop(f"{noise} noise itself")[-1] == cell(gains)
        for name, (not_zero, *cells) in table.items():
            found = masks[width, name]
            assert not_zero == f"{found['gradient_not_zero']:.1f}"
            assert cells == [cell(found[field]["per_seed"]) for field in fields]


def test_times():
    found = {}
    for record in records("amd-epyc-2c", "partial-relaxations-times", "relaxations-times"):
        base = {(row["n"], row["what"]): row["median_ms"] for row in record["times"]}
        for row in record["times"]:
            way = row["what"].removeprefix(name := re.sub(" forward.*", "", row["what"]))
            time = row["median_ms"] / base[row["n"], f"relaxed, p = 2{way}"]
            found[name, row["n"], way] = f"{time:.2g}", f"{row['memory']:.1f}"
    (table,) = tables("Times")
    assert len(table) == 12
    for name, (*times, memory) in table.items():
        keys = [(name, n, way) for n in (400, 1_000_000) for way in (" forward", " forward+backward")]
        assert times == [found.get(key, "-")[0] for key in keys]
        assert memory == found.get(keys[-1], "--")[1]


def test_nearest_neighbours():
    (table,) = tables("Nearest neighbours")
    found = {}
    for machine, *names in (
        ("amd-epyc-2c", "relaxations-neighbours"),
        ("intel-r-xeon-r-processor-2c", "partial-relaxations-neighbours"),
        ("amd-epyc-1c", "partial-relaxations-neighbours", "partial-relaxations-neighbours-imle"),
    ):
        for record in records(machine, *names):
            found |= {name.removesuffix(", 100 samples"): each for name, each in record["neighbours"].items()}
    assert table.keys() == found.keys()
    base = found["relaxed, p = 2"]["test_error"]["per_seed"]
    for name, cells in table.items():
        errors = found[name]["test_error"]["per_seed"]
        minus = [error - other for error, other in zip(errors, base, strict=True)]
        over = "-" if errors == base else cell(minus, signed=True)
        assert cells == [f"{found[name].get('width', '-')}", cell(errors), over]
