import json
import types

import jax.numpy as jnp
import pytest

import ops
from scripts.bench import traffic
from scripts.bench.sizes import Case

CASE = Case(3, 40, 5)


@pytest.fixture
def few(monkeypatch):
    """Four functions, as tests compile slowly."""
    every = traffic.functions

    def some(k, **options):
        found, mask = every(k, **options), "topk_mask p=2 lam=0.1"
        return {
            name: found[name]
            for name in (traffic.FLOOR, traffic.COPY, traffic.TOP_K, traffic.RTOPK, traffic.HARD, mask)
        }

    monkeypatch.setattr(traffic, "functions", some)


def test_what_is_timed_is_what_its_name_says():
    found, x = traffic.functions(2), jnp.asarray([[3.0, 1.0, 2.0]])
    assert found["topk_mask p=4/3 lam=0.01"](x).tolist() == ops.topk_mask(x, 2, lam=0.01, p=4 / 3).tolist()
    assert found["topk_mag p=2 lam=0.1"](x).tolist() == ops.topk_mag(x, 2, lam=0.1, p=2.0).tolist()
    assert found[traffic.TOP_K](x).tolist() == [[3.0, 2.0]]
    assert found[traffic.COPY](x).tolist() == x.tolist()


def test_a_record_holds_speeds_ratios_and_targets(few, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(traffic, "SMALL", (CASE,))
    assert traffic.main(["--small", "--seconds=0.01", f"--results={tmp_path}"]) == 0
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text())["traffic-small"]
    (case,) = document["cases"]
    rows = {(row["name"], row["mode"]): row for row in case["results"]}
    copy, mask = rows[traffic.COPY, "forward"], rows["topk_mask p=2 lam=0.1", "forward"]
    assert (case["batch"], case["n"], case["k"]) == CASE
    assert copy["over_copy"] == 1
    assert mask["over_copy"] == pytest.approx(mask["median_ms"] / copy["median_ms"])
    assert mask["gb_a_second"] == pytest.approx(2 * 4 * 3 * 40 / mask["median_ms"] / 1e6)
    gradient = rows["topk_mask p=2 lam=0.1", "gradient"]
    assert gradient["over_top_k"] == pytest.approx(gradient["median_ms"] / rows[traffic.TOP_K, "gradient"]["median_ms"])
    peer = rows[traffic.RTOPK, "forward"]
    assert (traffic.RTOPK, "gradient") not in rows
    ratios = [mask["over_copy"], pytest.approx(mask["median_ms"] / peer["median_ms"])]
    assert [target["measured"] for target in document["targets"]] == ratios
    assert f"results are in {path}" in capsys.readouterr().out


def test_calls_are_queued_as_often_as_makes_them_long_enough_to_time():
    counts = []
    times = traffic.time_queues({("f", "forward"): counts.append}, 0.0)
    assert counts[:2] == [2, 4]
    assert min(counts[2:]) > 8  # by thousands, unless the machine stalls
    assert times["f", "forward"].repetitions == len(counts) - 2 >= 3


def test_who_computes_something_else_or_fails_is_not_timed_and_the_others_are(few, monkeypatch, tmp_path, capsys):
    some = traffic.functions

    def two_go_wrong(k, **options):
        mask = "topk_mask p=2 lam=0.1"
        found = some(k, **options)
        if options:  # the other way, which is right
            return found
        return found | {mask: lambda x: 2 * found[mask](x), traffic.TOP_K: lambda x: x.reshape(7, -1)}

    monkeypatch.setattr(traffic, "functions", two_go_wrong)
    monkeypatch.setattr(traffic, "SMALL", (CASE,))
    assert traffic.main(["--small", "--seconds=0.01", f"--results={tmp_path}"]) == 1
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text())["traffic-small"]
    rows = {(row["name"], row["mode"]): row for row in document["cases"][0]["results"]}
    assert document["complete"]
    assert rows["topk_mask p=2 lam=0.1", "forward"]["status"] == "wrong"
    assert rows["topk_mask p=2 lam=0.1", "gradient"]["reason"].startswith("off by 1 from another way")
    assert rows[traffic.TOP_K, "forward"]["status"] == "failed"
    assert rows[traffic.COPY, "forward"]["status"] == rows[traffic.RTOPK, "forward"]["status"] == "timed"
    assert "wrong: off by" in capsys.readouterr().out
    assert not document["targets"]


def test_a_command_that_was_stopped_goes_on_with_the_next_shape(few, monkeypatch, tmp_path, capsys):
    other, measured = Case(2, 30, 3), []

    def measure(case, seconds, lost, attempt):
        if measured == [CASE]:
            measured.clear()
            raise KeyboardInterrupt
        measured.append(case)
        return {"batch": case.batch, "n": case.n, "k": case.k, "results": []}

    monkeypatch.setattr(traffic, "measure", measure)
    monkeypatch.setattr(traffic, "SMALL", (CASE, other))
    command = ["--small", "--seconds=0.01", f"--results={tmp_path}"]
    with pytest.raises(KeyboardInterrupt):
        traffic.main(command)
    (path,) = tmp_path.iterdir()
    assert not json.loads(path.read_text())["traffic-small"]["complete"]
    assert traffic.main(command) == 0
    assert measured == [other]
    document = json.loads(path.read_text())["traffic-small"]
    assert document["complete"]
    assert [case["n"] for case in document["cases"]] == [40, 30]
    assert "going on after 1 cases that are measured already" in capsys.readouterr().out


@pytest.mark.parametrize(("floor", "platform", "waits"), [(6.0, "gpu", True), (4.0, "gpu", False), (6.0, "cpu", False)])
def test_a_copy_that_takes_hardly_longer_than_the_least_call_is_launch_bound(monkeypatch, floor, platform, waits):
    times = {(traffic.FLOOR, "forward"): floor, (traffic.COPY, "forward"): 10.0}
    rows = [{"name": name, "mode": mode, "status": "timed"} for name, mode in times]
    summaries = {key: traffic.Summary(time, time, time, 3) for key, time in times.items()}
    monkeypatch.setattr(traffic, "queues", lambda *_: ({}, rows))
    monkeypatch.setattr(traffic, "time_queues", lambda *_: summaries)
    monkeypatch.setattr(traffic, "jax", types.SimpleNamespace(default_backend=lambda: platform))
    least, copy = traffic.measure(CASE, 1.0)["results"]
    assert copy["launch_bound"] == waits
    assert least["gb_a_second"] is None
    assert len(list(traffic.lines({"results": [least | {"reason": None}, copy | {"reason": None}]}))) == 3


def test_nothing_is_concluded_where_the_copy_waits_for_what_begins_it():
    def case(launch_bound):
        row = {"mode": "forward", "status": "timed", "launch_bound": launch_bound}
        times = {traffic.COPY: 1.0, "topk_mask p=2 lam=1": 3.0}
        return {"batch": 1, "n": 9, "k": 2, "results": [row | {"name": n, "median_ms": t} for n, t in times.items()]}

    held = [target["status"] for target in traffic.targets([case(False), case(True)])]
    assert held == ["MISS", "launch-bound"]
