"""The command line shared by all experiments.

    python -m experiments.NAME --config=configs/NAME.py[:VARIANT] --workdir=DIR --config.x.y=value [--check]

A mistake of the user's ends in one line on stderr and exit status 2; a bug ends in a traceback.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Sequence

import ml_collections
from absl import flags, logging

from experiments.core import config_file, console
from experiments.core.config import leaves, lines
from experiments.core.errors import UsageError
from experiments.core.record import hardware
from experiments.core.record.environment import Launch
from experiments.core.training import experiment, processes, train

_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}


def main(recipe: experiment.Recipe) -> None:
    """Runs an experiment with the config given on the command line."""
    console.run(lambda _: _command(recipe, sys.argv))


def _command(recipe: experiment.Recipe, argv: Sequence[str]) -> int:
    if _HELP & set(argv[1:]):
        return _help(recipe.name, argv)
    command = Command(recipe, flags.FLAGS, argv)
    command.parse()
    return command.run()


def _help(name: str, argv: Sequence[str]) -> int:
    """Prints the options, what the config file says of itself, and the fields of the config given or of the default."""
    paths, _, _ = config_file.split(argv[1:])
    argument = paths[-1] if paths else f"configs/{name}.py"
    config, path = config_file.load(argument), argument.partition(":")[0]
    module = config_file.module_of(path)
    variants = {name: getattr(module, name) for name in ("VARIANTS", "OPTIONS") if hasattr(module, name)}
    options = flags.FlagValues()
    _define_options(options)
    said = [
        (importlib.import_module(f"experiments.{name}").__doc__ or "").partition("\n")[0],
        "",
        f"python -m experiments.{name} --config={path}[:VARIANT] --workdir=DIR [--config.FIELD=VALUE ...]",
        options.get_help(include_special_flags=False),
        "",
        f"The config file, {path}, in its own words (comments in it say what each field means):",
        "",
        inspect.cleandoc(module.__doc__ or "It has no docstring."),
        "",
        *(f"{name}: {', '.join(names)}\n" for name, names in variants.items()),
        f"Fields of {argument}, each set by --config.FIELD=VALUE:",
        "",
        *lines(config),
    ]
    print("\n".join(said))
    return 0


def _define_options(flag_values: flags.FlagValues) -> None:
    """Defines the flags, but for the fields of the config."""
    flags.DEFINE_string(
        "config",
        None,
        "Path of the config file, whose fields --help lists. It is Python, and is run: name only what you trust.",
        flag_values=flag_values,
    )
    flags.DEFINE_string("workdir", None, "Where config, metrics and checkpoints are kept.", flag_values=flag_values)
    flags.DEFINE_bool(
        "check",
        False,
        "Only say whether the config can be run in the workdir, on as many devices as JAX sees; neither accelerators "
        "nor data are asked for.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "show_config", False, "Only print every field of the config, all overrides applied.", flag_values=flag_values
    )


class Command:
    """The flags of an experiment, and what they ask for.

    Attributes:
      config: all overrides applied, once the command line is parsed.
    """

    config: ml_collections.ConfigDict

    def __init__(self, recipe: experiment.Recipe, flag_values: flags.FlagValues, argv: Sequence[str]):
        """Defines the flags in `flag_values`, for the command line `argv` alone."""
        self._recipe, self._flags, self._overrides = recipe, flag_values, dict[str, str]()
        try:
            self._argv = flag_values.read_flags_from_files(list(argv), force_gnu=False)
        except flags.Error as error:
            raise UsageError(str(error)) from error
        _define_options(flag_values)

    def parse(self) -> None:
        """Reads the command line, and checks that there is a config whose fields are those overridden.

        Raises:
          UsageError: a flag or field is unknown, has no such values or is missing.
        """
        # orbax has much to report; --verbosity still decides.
        logging.set_verbosity(logging.ERROR)
        paths, overrides, rest = config_file.split(self._argv[1:])
        try:
            unexpected = self._flags([self._argv[0], *rest])[1:]
        except flags.Error as error:
            raise UsageError(str(error)) from error
        if unexpected:
            raise UsageError(f"unexpected argument {unexpected[0]!r}: every option starts with --")
        if not paths:
            raise UsageError("--config is required, for example --config=configs/mnist_pruning.py")
        if len(paths) > 1:
            raise UsageError("--config is given twice")
        base = config_file.load(paths[0])
        self.config = config_file.overridden(base, overrides)
        if not self._flags.workdir and not self._flags.show_config:
            raise UsageError("--workdir is required: the directory that keeps the run")
        if kinds := self._recipe.kinds:
            kinds.check_overrides(paths[0], base, self.config, [name for name, _ in overrides])
        set_fields = dict(leaves(self.config.to_dict()))
        for name, value in overrides:
            set_to = set_fields[name]
            self._overrides[name.removeprefix("config.")] = str(set_to)
            if isinstance(set_to, tuple) and not re.search(r"[(\[,]", value or ""):
                print(f"{name}={value} is taken for the tuple {set_to}", flush=True)

    def run(self) -> int:
        """Does what the command line asks for; returns the exit status."""
        config, workdir = self.config, self._flags.workdir
        if self._flags.show_config:
            print("\n".join(lines(config)))
            return 0
        if self._flags.check:
            hardware.require_devices()
            train.check(self._recipe, config, workdir)
            print("the config can be run")
            return 0
        launch = Launch(
            command=["python", "-m", f"experiments.{self._recipe.name}", *self._argv[1:]],
            overrides=self._overrides,
        )
        processes.initialize()
        with processes.leaving_promptly():
            hardware.require_devices()
            train.run(self._recipe, config, workdir, launch)
        return 0
