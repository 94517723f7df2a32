"""What is measured with other settings than the committed records does not replace them unasked."""

import importlib
from pathlib import Path

import pytest

from scripts.bench import record


@pytest.mark.parametrize(
    ("module", "arguments", "option"),
    [
        ("__main__", ["--peers=jaxopt"], "peers"),
        ("losses", ["--variant=Ti/16", "--size=32"], "variant"),
        ("router", ["--batch_size=8"], "batch_size"),
        ("isotonic", ["--lams", "1"], "lams"),
        ("pages", ["--runs", "5"], "runs"),
        ("steps", ["--seeds=2", "--steps=3"], "steps"),
        ("pipeline", ["--workers", "0"], "workers"),
    ],
)
def test_other_settings_must_say_where_their_record_goes(tmp_path, monkeypatch, capsys, module, arguments, option):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exited:
        importlib.import_module(f"scripts.bench.{module}").main(arguments)
    assert exited.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"error: --{option}: the records in results/bench are of the default, " in said
    assert said.endswith(": --results must say where to write it")
    assert list(tmp_path.iterdir()) == []


def test_settings_that_replace_nothing_are_free(tmp_path):
    def results(*arguments):
        parser = record.parser("scripts.bench", "Something: more")
        parser.add_argument("--quick", action="store_true")
        parser.add_argument("--seconds", type=float, default=1.0)
        parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
        return record.parse(parser, arguments, harmless=("quick",)).results

    assert results("--quick", "--seconds=3", "--sizes", "1", "2") == Path("results/bench")
    assert results("--sizes", "1", f"--results={tmp_path}") == tmp_path
