"""Mistakes are one line, before anything is compiled; and the whole way for the CPU's compiler."""

import sys
import time
from concurrent import futures

import jax
import pytest

from scripts import sections
from scripts.aot import check, command, compiled, compiler, hardware, one, runs, step_tables, wanted
from scripts.aot.compiled import Buffer, TooLarge

pytestmark = pytest.mark.filterwarnings(r"ignore:the load_module\(\) method:DeprecationWarning")  # of ml_collections
VMOE = ["vmoe", "--config=configs/vmoe.py:small", "--type=v5litepod-4"]


@pytest.fixture
def here(monkeypatch):
    """The devices of this machine in the place of a slice's."""
    monkeypatch.setattr(compiler, "prepare", lambda slice_: None)
    monkeypatch.setattr(compiler, "devices", lambda slice_: jax.devices()[: slice_.count])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vmoe"], "--type is required, for example --type=v5litepod-16"),
        (["vmoe", "--type=v5litepod-5"], "--type=v5litepod-5 is not allowed: it must be one of "),
        (["nothing", "--type=v5e"], "'nothing' is not an experiment: there is no experiments/nothing"),
        (["core", "--type=v5e"], "'core' is not an experiment: experiments.core.experiment has no RECIPE"),
        (["vmoe", "--type=v5e", "--config=configs/none.py"], "--config=configs/none.py: there is no such file"),
        ([*VMOE, "--", "--config.moe.expert=3"], "--config.moe.expert: the config has no field 'expert'"),
        ([*VMOE, "--", "--config.steps=x"], "config.steps='x' is not allowed: it must be an integer"),
        (["operators", "--type=v5e", "--only=topk"], "--only=topk is not allowed: it must be some of topk_mask, "),
        (["operators", "--type=v5e", "--n=7"], "--n=7 is not allowed: it must be some of 400, 1000, "),
        (["check", "--types=v4-8"], "--types=v4-8 is not allowed: it must be some of "),
    ],
)
def test_mistakes(here, capsys, tmp_path, arguments, message):
    assert command.main([*arguments[:1], f"--results={tmp_path}", *arguments[1:]]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {message}") or err.startswith(f"error: --{message}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_mesh_that_does_not_fit_the_slice(here, capsys, tmp_path):
    assert command.main([*VMOE, f"--results={tmp_path}", "--", "--config.mesh.expert=3"]) == 2
    assert "sizes that multiply to the 4 devices" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("type_", "package", "extra"), [("v5litepod-16", "libtpu", "tpu"), ("h200-1", "jax_cuda13_plugin", "cuda13")]
)
def test_a_package_that_is_missing(monkeypatch, capsys, type_, package, extra):
    monkeypatch.setattr(compiler, "available", lambda platform: False)
    assert command.main(["vmoe", f"--type={type_}"]) == 2
    err = capsys.readouterr().err
    assert f"needs the package {package}, which is not installed here" in err
    assert f"make install VENV=.venv-{extra} JAX={extra}" in err
    assert err.count("\n") == 1


DIGITS = ["--config.dataset=digits", "--config.epochs=2", "--config.seeds=(0,)", "--config.hidden=(16,)"]
DIGITS += ["--config.prune_layers=(1,)", "--config.checkpoint_every=2", "--config.optimizer.learning_rate=0.1"]
MNIST = ["mnist_pruning", "--config=configs/mnist_pruning.py:dense", "--type=v5litepod-1"]


def test_from_the_command_to_the_table(here, capsys, tmp_path):
    """Of the CPU's compiler, under the name of a TPU: a record, lines for people, and a table."""
    assert command.main([*MNIST, f"--results={tmp_path}", "--no_evaluation", "--", *DIGITS]) == 0
    out = capsys.readouterr().out
    assert "train: fits on v5litepod-1" in out
    # The evaluation may follow later.
    assert command.main([*MNIST, f"--results={tmp_path}", "--", *DIGITS]) == 0
    out += capsys.readouterr().out
    assert out.count("the train step for v5litepod-1") == out.count("the evaluation for v5litepod-1") == 1
    assert "computed, not measured" in out
    (path,) = tmp_path.glob("*.json")
    ((place, document),) = sections.read(path, "steps").items()
    train = document["train"]
    assert document["git"]["commit"]
    # 1438 digits of 64 pixels in 11 batches of 128, forwards and twice backwards, but for the pixels' own gradient.
    products = 11 * 128 * 2 * (2 * 64 * 16 + 3 * 16 * 10)
    assert train["operations"] == products
    assert train["roofline"]["compute_seconds"] == pytest.approx(products / 197e12)
    assert any(loop["rounds"] == 11 for loop in train["loops"])
    assert train["memory"]["peak"] > 0
    assert document["evaluation"]["fits"]
    # What is there is not compiled again.
    assert command.main([*MNIST, f"--results={tmp_path}", "--", *DIGITS]) == 0
    assert "has it already" in capsys.readouterr().out
    # Nor are the programs where other code has changed.
    sections.write(path, document | {"code": "another"}, "steps", place)
    assert command.main([*MNIST, f"--results={tmp_path}", "--", *DIGITS]) == 0
    assert capsys.readouterr().out.count("the program is the one that was compiled before") == 2
    again = sections.read(path, "steps", place)
    assert (again["train"], again["code"]) == (document["train"], document["code"])
    assert command.main(["tables", f"--results={tmp_path}"]) == 0
    page = (tmp_path / "README.md").read_text()
    assert "| mnist_pruning dense dataset=digits" in page
    assert "Nothing of it is measured" in page


@pytest.mark.parametrize(
    "places",
    [["--keep_text=/elsewhere", "--results=/elsewhere"], ["--keep_text", "/elsewhere", "--results", "/elsewhere"]],
)
def test_a_record_says_nothing_of_places_on_this_machine(monkeypatch, places):
    noted = []
    monkeypatch.setattr(command, "_step", lambda options, slice_, overrides, command: noted.append(command) or 0)
    assert command.main([*MNIST, *places, "--no_evaluation", "--", *DIGITS]) == 0
    # In the order of the help, and nothing that goes without saying.
    options = ["--type=v5litepod-1", "--config=configs/mnist_pruning.py:dense", "--no_evaluation"]
    assert noted == [["python", "-m", "scripts.aot", "mnist_pruning", *options, "--", *DIGITS]]


def test_a_step_that_does_not_fit(here, capsys, tmp_path, monkeypatch):
    def refuse(lowered, platform, keep):
        raise TooLarge(20e9, 16e9, (Buffer("f32[4096,4096]", 2**26, "jit(train)/dot"),))

    monkeypatch.setattr(compiled, "compile_", refuse)
    assert command.main([*MNIST, f"--results={tmp_path}", "--", *DIGITS]) == command.DOES_NOT_FIT
    out = capsys.readouterr().out
    assert "it does not fit: a device of v5litepod-1 has 16.0 GB, the step needs 20.0 GB" in out
    assert "f32[4096,4096]  jit(train)/dot" in out
    assert "what helps: --config.batch_size below 128" in out
    (document,) = sections.read(tmp_path / "tpu-v5e.json", "steps").values()
    assert not document["train"]["fits"]
    assert "**no**" in "\n".join(step_tables.steps_table([document]))


def test_any_other_refusal_is_a_line(here, capsys, tmp_path, monkeypatch):
    def refuse(lowered, platform, keep):
        raise compiled.Refused("INTERNAL: a reason")

    monkeypatch.setattr(compiled, "compile_", refuse)
    assert command.main([*MNIST, f"--results={tmp_path}", "--", *DIGITS]) == 2
    assert capsys.readouterr().err.endswith("for v5litepod-1: INTERNAL: a reason\n")


def test_every_run_of_the_check_is_valid_where_it_is_compiled():
    """But for those refused before: groups, experts and devices have to divide one another."""
    for run in wanted.RUNS:
        recipe = runs.recipe_of(run.experiment)
        path = f"configs/{run.experiment}.py:{run.variant}"
        overrides = [f"--config.{override}" for override in run.overrides]
        config = runs.config_of(recipe, path, overrides)
        for type_ in run.types:
            slice_ = hardware.parse(type_)
            sized = runs.sized(config, slice_)
            runs.train.check_fields(recipe, sized, slice_.count)


def test_what_the_check_does_by_type(tmp_path):
    everything = check.commands(None, tmp_path, anew=False)
    of_operators = [(type_, arguments) for type_, arguments in everything if arguments[0] == "operators"]
    assert [type_ for type_, _ in of_operators] == [*wanted.CHIPS[:3] * 4, *wanted.CHIPS[3:]]
    assert {"--mode=value", "--only=topk_mask,topk_mag,hard_topk_mask,lax.top_k"} <= set(of_operators[0][1])
    assert "--n=1000,1000000" in of_operators[6][1]
    more = check.commands(None, tmp_path, anew=False, everything=True)
    assert more[: len(everything)] == everything
    whole = [(type_, ["operators", f"--type={type_}", f"--results={tmp_path}"]) for type_ in wanted.CHIPS]
    assert more[len(everything) :] == whole
    some = check.commands(["v6e-16", "h200"], tmp_path, anew=True)
    assert {type_ for type_, _ in some} == {"v6e-16", "h200"}
    assert all("--anew" in arguments for _, arguments in some)
    names = [(type_, a[3]) for type_, a in everything if a[0] != "operators"]
    assert len(set(names)) == len(names)


def test_without_an_environment_it_is_said_and_the_rest_is_done(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "_python", lambda platform: "true" if platform == "cuda" else None)
    assert check.go(["h200", "v5e"], tmp_path, anew=False) == 0
    out = capsys.readouterr().out
    assert "nothing is compiled for tpu: there is no .venv-tpu/bin/python" in out
    assert "[1/4] operators --type=h200" in out
    monkeypatch.setattr(check, "_python", lambda platform: "false")
    assert check.go(["h200"], tmp_path, anew=False) == 1
    assert "FAILED: operators --type=h200" in capsys.readouterr().err


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Stands for compilers: notes its type, waits until there are two of them, and notes that it is done."""
    log = tmp_path / "log"
    log.touch()
    script = tmp_path / "compiler"
    noted = [
        f"#!{sys.executable}",
        "import pathlib, sys, time",
        f"log = pathlib.Path({str(log)!r})",
        "(type_,) = [each[7:] for each in sys.argv if each.startswith('--type=')]",
        "note = lambda line: log.open('a').write(line + '\\n')",
        "note(f'begins {type_}')",
        "print('at work', flush=True)",
        "deadline = time.monotonic() + WAIT",
        "while log.read_text().count('begins') < 2 and time.monotonic() < deadline: time.sleep(0.01)",
        "note(f'ends {type_}')",
    ]

    def write(wait):
        script.write_text("\n".join(noted).replace("WAIT", str(wait)))
        script.chmod(0o755)
        return log

    monkeypatch.setattr(check, "_python", lambda platform: str(script))
    return write


def test_several_at_once_but_one_for_a_file(tmp_path, pretended, capsys):
    log = pretended(wait=20)
    assert check.go(["v5e", "v6e"], tmp_path, anew=False, jobs=2) == 0
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["begins", "begins"]
    for type_ in ("v5e", "v6e"):  # each of its processes ends before its next
        assert [line.split()[0] for line in lines if line.endswith(type_)] == ["begins", "ends"] * 4
    out = capsys.readouterr().out
    assert "v5e: at work\n" in out
    assert "v6e: at work\n" in out
    assert "[8/8] operators --type=" in out


def test_interrupted_it_ends_what_goes_on(tmp_path, pretended, monkeypatch):
    log = pretended(wait=60)
    attempt = tmp_path / "tpu-v5e.attempt"
    attempt.write_text("topk_mask 1")
    interrupts = []

    def result(future, timeout=None):
        while not log.read_text():  # until the first is at work
            time.sleep(0.01)
        interrupts.append(future)
        raise KeyboardInterrupt

    monkeypatch.setattr(futures.Future, "result", result)
    with pytest.raises(KeyboardInterrupt):
        check.go(["v5e"], tmp_path, anew=False)
    assert log.read_text() == "begins v5e\n"
    assert len(interrupts) == 1
    assert not attempt.exists()


def test_names_of_records():
    assert one.name_of("vmoe", "configs/vmoe.py:small", ["--config.mesh.expert=4"]) == "vmoe small mesh.expert=4"
