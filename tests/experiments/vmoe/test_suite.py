"""The suites of V-MoE: their runs are sound, compare like with like, and end alike on one device and two processes."""

import json
import re
import signal

import jax
import numpy as np
import pytest

from configs.vmoe import get_config
from experiments.core.record import metrics
from experiments.core.suite import command
from experiments.core.suite.plan import SuiteRun
from experiments.core.training import train
from experiments.vmoe import suite
from experiments.vmoe.experiment import RECIPE, routing_shape
from experiments.vmoe.router_kinds import ROUTERS
from experiments.vmoe.suite import BEST_RATE, DEMO, SUITE
from tests.experiments.processes import begin, finish, wait_for_rows
from tests.experiments.support import ROOT, assert_same_rows, assert_sound, suite_configs
from tests.experiments.vmoe import tables

# One run of the suite, which two processes make again: nearly all the time is compilation. The relaxed router is in
# test_exchange.py, and so are groups that lie on several devices.
VARIANT = "small,router=hard"
SHORT = DEMO | {
    "input.augment_on": "host",  # every process makes its rows of a batch
    "input.recipe": "none",
    "model.depth": 1,
    "moe.blocks": (0,),
    "batch_size": 80,
    "eval_batch_size": 160,
    "seeds": (1,),
    "steps": 20,
    "steps_per_dispatch": 1,
    "eval_every": 4,
    "checkpoint_every": 8,
    "optimizer.warmup_steps": 4,
}
RUN = SuiteRun("final-hard", SHORT, variant=VARIANT)


@pytest.mark.parametrize("preset", SUITE.presets)
def test_every_run_of_a_preset_is_one_that_the_trainer_accepts(preset, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert_sound(SUITE, preset)
    assert {config.accelerator for _, config in suite_configs(SUITE, preset)} == {preset == "full"}


@pytest.mark.parametrize("preset", ["small", "longer"])
def test_routers_have_the_papers_problem_and_every_form_of_the_papers(preset):
    made = suite_configs(SUITE, preset)
    shapes = [(routing_shape(config), config.moe.num_experts, config.batch_size) for _, config in made]
    assert len({batch_size for *_, batch_size in shapes}) == 1
    assert {(shape.tokens, shape.k, num_experts) for shape, num_experts, _ in shapes} == {(400, 28, 32)}
    final = [config.router for run, config in made if not run.candidate_for]
    forms = {(router.name, router.score, router.dykstra) for router in final}
    assert forms >= {("hard", "gates", 0), *(("relaxed", score, 0) for score in ("gates", "logits"))}
    assert forms >= {("relaxed", "logits", 10), ("token_choice", "logits", 0)}
    assert preset == "small" or {router.name for router in final} == set(ROUTERS) - suite.OMITTED


def test_on_tokens_every_router_is_tried_at_the_same_rates():
    assert next(iter(SUITE.presets)) == "tokens"
    assert SUITE.presets["longer"]()[: len(SUITE.presets["tokens"]())] == SUITE.presets["tokens"]()
    rates, lengths = {}, {}
    for run, config in suite_configs(SUITE, "longer"):
        choice = (run.candidate_for or run.best_of).removesuffix(", lam")
        lengths.setdefault(choice, set()).add(config.steps)
        if run.candidate_for:
            rates.setdefault(choice, set()).add(config.optimizer.learning_rate)
        else:
            assert tuple(config.seeds) == suite.TOKENS_SEEDS
    assert all(tried == set(suite.TOKENS_RATES) for tried in rates.values())
    longer = {f"{name}, {suite.LONGER_STEPS} steps" for name in suite.LONGER}
    assert {name for name, steps in lengths.items() if steps == {suite.LONGER_STEPS}} == longer
    assert all(lengths[name] == {800} for name in lengths.keys() - longer)


def test_all_train_at_the_rate_that_the_committed_sweep_chose():
    choices = json.loads((ROOT / "results" / "vmoe" / "choices.json").read_text())
    assert choices["hard"]["setting"] == {"optimizer.learning_rate": BEST_RATE}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory in which the suite has trained its one run, on one device, and drawn it."""
    out = tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        assert command.run_suite(SUITE, out, [RUN], [RUN], ["suite"]) == 0
    return out


def test_a_run_of_a_suite_learns_says_what_its_router_did_and_is_drawn(made):
    rows = metrics.read(made / RUN.name / "metrics.jsonl")
    start, end = rows[0], rows[-1]
    assert start["test_precision_at_1"] == pytest.approx([10], abs=5)
    assert end["test_precision_at_1"][0] > start["test_precision_at_1"][0] + 5
    np.testing.assert_allclose(end["test_error"], 100 - np.array(end["test_precision_at_1"]), atol=1e-4)
    for prefix in ("train", "test"):
        router = end[f"{prefix}_router"]["block_0"]
        assert min(router["support"]) == 44
        assert max(router["dropped_mass"]) < 20
    assert start["train_router"]["block_0"]["support"] == [None]  # nothing has been trained
    assert start["test_stability"] == {"block_0": [None]}
    assert all(0 < value < 100 for row in rows[1:] for value in row["test_stability"]["block_0"])
    lines = (made / "table.md").read_text().splitlines()
    assert [row["router"] for row in tables.read(lines, "Test after 20 steps")] == ["hard, gates"]


def two_processes(workdir):
    """The processes of a run, with two devices each; two parts of matrices and two of the experts."""
    fields = SHORT | {"mesh.data": 1, "mesh.fsdp": 2, "mesh.expert": 2}
    return begin("experiments.vmoe", f"configs/vmoe.py:{VARIANT}", workdir, fields, processes=2, devices=2)


def test_two_processes_stop_together_and_one_device_goes_on_as_if_it_had_been_alone(made, tmp_path):
    workdir = tmp_path / "run"
    processes = two_processes(workdir)
    wait_for_rows(processes, workdir, 3)  # to step 8
    processes[1].send_signal(signal.SIGTERM)
    first, second = finish(processes)
    assert "step" not in second  # only the first process reports
    (last,) = re.findall(r"^stopped by a signal to another process after step (\d+)", first, re.MULTILINE)
    assert 8 <= int(last) < 20
    assert not (workdir / "summary.json").exists()
    saved = workdir / "checkpoints" / last / "state"
    assert {path.name for path in saved.glob("ocdbt.process_*")} == {"ocdbt.process_0", "ocdbt.process_1"}

    config = get_config(VARIANT)
    config.update_from_flattened_dict(SHORT)
    del config.mesh
    train.run(RECIPE, config, workdir)
    losses = [row["train_loss"][0] for row in metrics.read(workdir / "metrics.jsonl")[1:]]
    assert len(set(losses)) == 5
    assert_same_rows(workdir, made / RUN.name)
