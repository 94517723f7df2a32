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
from absl import app, flags, logging
from ml_collections import config_flags

from experiments.core import config_file, console
from experiments.core.config import lines
from experiments.core.errors import UsageError
from experiments.core.record import hardware
from experiments.core.record.environment import Launch
from experiments.core.training import experiment, mesh, processes, train

config_flags.register_flag_parser_for_type(tuple, config_file.TupleParser())
config_flags.register_flag_parser_for_type(str, config_file.TextParser())

_CONFIG_HELP = "Path of the config file. It is Python, and is run: name only what you trust."
_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}


def main(recipe: experiment.Recipe) -> None:
    """Runs an experiment with the config given on the command line."""
    if _HELP & set(sys.argv[1:]):
        console.run(lambda _: _help(recipe.name, sys.argv))
    command: Command

    def parse(_: Sequence[str]) -> list[str]:
        nonlocal command
        command = Command(recipe, flags.FLAGS, sys.argv)
        return command.parse()

    console.run(lambda _: app.run(lambda _: command.run(), flags_parser=parse))


def _help(name: str, argv: Sequence[str]) -> int:
    """Prints the options, what the config file says of itself, and the fields of the config given or of the default."""
    paths = [value for flag, value in config_file.given(argv[1:]) if flag == "config" and value]
    argument = paths[-1] if paths else f"configs/{name}.py"
    config, path = config_file.load(argument), argument.partition(":")[0]
    module = config_file.module_of(path)
    variants = {name: getattr(module, name) for name in ("VARIANTS", "OPTIONS") if hasattr(module, name)}
    about = importlib.import_module(f"experiments.{name}").__doc__ or ""
    options = flags.FlagValues()
    flags.DEFINE_string("config", None, f"{_CONFIG_HELP} With --help: whose fields to list.", flag_values=options)
    _define_options(options)
    said = [
        about.partition("\n")[0],
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
    """Defines the flags besides `--config`, and its fields."""
    flags.DEFINE_string("workdir", None, "Where config, metrics and checkpoints are kept.", flag_values=flag_values)
    flags.DEFINE_bool(
        "check",
        False,
        "Only say whether the config can be run in the workdir, on as many devices as JAX sees; neither accelerators "
        "nor data are asked for.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "check_processes",
        1,
        "With --check: how many processes there will be, which JAX cannot see.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "show_config", False, "Only print every field of the config, all overrides applied.", flag_values=flag_values
    )


class Command:
    """The flags of an experiment, and what they ask for."""

    def __init__(self, recipe: experiment.Recipe, flag_values: flags.FlagValues, argv: Sequence[str]):
        """Defines the flags in `flag_values`, for the command line `argv` alone."""
        self._recipe, self._flags = recipe, flag_values
        try:
            self._argv = flag_values.read_flags_from_files(list(argv), force_gnu=False)
        except flags.Error as error:
            raise UsageError(str(error)) from error
        self._config = config_flags.DEFINE_config_file(
            "config",
            help_string=_CONFIG_HELP,
            flag_values=flag_values,
            sys_argv=self._argv,
        )
        _define_options(flag_values)

    def parse(self) -> list[str]:
        """Reads the command line, and checks that there is a config whose fields are those overridden.

        Raises:
          UsageError: a flag or field is unknown, has no such values or is missing.
        """
        # absl reports at INFO under app.run, and orbax has much to report; --verbosity still decides.
        logging.set_verbosity(logging.ERROR)
        given = config_file.given(self._argv[1:])
        paths = [value for name, value in given if name == "config"]
        overrides = [(name, value) for name, value in given if name != "config"]
        if len(paths) > 1:
            raise UsageError("--config is given twice")
        config = config_file.load(paths[0]) if paths and paths[0] else None
        if config is not None:
            for name, value in overrides:
                config_file.check_override(config, name, value)
        try:
            rest = self._flags(self._argv)
        except flags.Error as error:
            for name, value in overrides:
                if config is not None and str(error).startswith(f"flag --{name}={value}: "):
                    allowed = config_file.expected(config, name)
                    raise UsageError(f"{name}={value!r} is not allowed: it must be {allowed}") from error
            raise UsageError(str(error)) from error
        if len(rest) > 1:
            raise UsageError(f"unexpected argument {rest[1]!r}: every option starts with --")
        if config is None:
            raise UsageError("--config is required, for example --config=configs/mnist_pruning.py")
        if not self._flags.workdir and not self._flags.show_config:
            raise UsageError("--workdir is required: the directory that keeps the run")
        if kinds := self._recipe.kinds:
            kinds.check_overrides(paths[0] or "", config, self.config, [name for name, _ in overrides])
        for name, value in overrides:
            tuple_ = self._flags[name].value
            if isinstance(tuple_, tuple) and not re.search(r"[(\[,]", value or ""):
                print(f"{name}={value} is taken for the tuple {tuple_}", flush=True)
        return rest

    @property
    def config(self) -> ml_collections.ConfigDict:
        """The config, all overrides applied, once the command line is parsed."""
        return self._config.value

    def run(self) -> int:
        """Does what the command line asks for; returns the exit status."""
        config, workdir = self.config, self._flags.workdir
        if self._flags.show_config:
            print("\n".join(lines(config)))
            return 0
        if self._flags.check:
            hardware.require_devices()
            train.check(self._recipe, mesh.of_processes(config, self._flags.check_processes), workdir)
            print("the config can be run")
            return 0
        overrides = config_flags.get_override_values(self._flags["config"])
        launch = Launch(
            command=["python", "-m", f"experiments.{self._recipe.name}", *self._argv[1:]],
            overrides={field: str(value) for field, value in overrides.items()},
        )
        processes.initialize()
        with processes.leaving_promptly():
            hardware.require_devices()
            train.run(self._recipe, config, workdir, launch)
        return 0
