"""The command line shared by all experiments.

    python -m experiments.NAME --config=configs/NAME.py[:VARIANT] --workdir=DIR --config.x.y=value

A mistake of the user's ends in one line on stderr and exit status 2; a bug ends in a traceback.
"""

import argparse
import importlib
import inspect
from collections.abc import Sequence
from typing import NoReturn

import ml_collections
from absl import logging

from experiments.core import config as config_lib
from experiments.core import console
from experiments.core.errors import UsageError
from experiments.core.record import hardware
from experiments.core.training import experiment, guard, train


def main(recipe: experiment.Recipe) -> None:
    """Runs an experiment with the config given on the command line."""
    console.run(lambda arguments: run(recipe, arguments))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"python -m experiments.{name}",
        usage=f"%(prog)s --config=configs/{name}.py[:VARIANT] --workdir=DIR [--config.FIELD=VALUE ...]",
        allow_abbrev=False,
    )
    file = "config file, whose fields --help lists; it is Python, and is run: name only what you trust"
    parser.add_argument("--config", metavar="PATH[:VARIANT]", help=file)
    parser.add_argument("--workdir", metavar="DIR", help="where config, metrics and checkpoints are kept")
    every = "only print every field of the config, all overrides applied"
    parser.add_argument("--show_config", action="store_true", help=every)
    return parser


def parse(recipe: experiment.Recipe, arguments: Sequence[str]) -> tuple[argparse.Namespace, ml_collections.ConfigDict]:
    """Reads the options of a command line, and the config with all overrides applied; `UsageError` for mistakes."""
    overrides = [argument for argument in arguments if argument.startswith("--config.")]
    options = _parser(recipe.name).parse_args([each for each in arguments if not each.startswith("--config.")])
    if not options.config:
        raise UsageError(f"--config is required, for example --config=configs/{recipe.name}.py")
    if not options.workdir and not options.show_config:
        raise UsageError("--workdir is required: the directory that keeps the run")
    base = config_lib.load(options.config)
    config = config_lib.overridden(base, overrides)
    if recipe.kinds:
        names = [override.partition("=")[0].removeprefix("--config.") for override in overrides]
        recipe.kinds.check_overrides(options.config, base, config, names)
    return options, config


def run(recipe: experiment.Recipe, arguments: Sequence[str]) -> int:
    """Does what a command line asks for; returns the exit status."""
    if {"-h", "--help"} & set(arguments):
        return _help(recipe.name, arguments)
    logging.set_verbosity(logging.ERROR)  # of orbax, which has much to report
    options, config = parse(recipe, arguments)
    if options.show_config:
        print("\n".join(config_lib.lines(config)))
        return 0
    with guard.joined():
        hardware.require_devices()
        command = ["python", "-m", f"experiments.{recipe.name}", *arguments]
        train.run(recipe, config, options.workdir, command)
    return 0


def _help(name: str, arguments: Sequence[str]) -> int:
    """Prints the options, what the config file says of itself, and the fields of the config given or of the default."""
    configs = [each.partition("=")[2] for each in arguments if each.startswith("--config=")]
    argument = configs[-1] if configs else f"configs/{name}.py"
    config, path = config_lib.load(argument), argument.partition(":")[0]
    module = config_lib.namespace(path)
    print((importlib.import_module(f"experiments.{name}").__doc__ or "").partition("\n")[0], end="\n\n")
    print(_parser(name).format_help())
    print(f"The config file, {path}, in its own words (comments in it say what each field means):", end="\n\n")
    print(inspect.cleandoc(module["__doc__"] or "It has no docstring."), end="\n\n")
    for each in ("VARIANTS", "OPTIONS"):
        if each in module:
            print(f"{each}: {', '.join(module[each])}", end="\n\n")
    print(f"Fields of {argument}, each set by --config.FIELD=VALUE:", *config_lib.lines(config), sep="\n")
    return 0
