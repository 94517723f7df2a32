"""The command line shared by all experiments.

    python -m experiments.NAME --config=configs/NAME.py[:VARIANT] --workdir=DIR --config.x.y=value [--check]

A mistake of the user's ends in one line on stderr and exit status 2; a bug ends in a traceback.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import app, flags, logging
from ml_collections import config_flags

from experiments.core import distributed, mesh, train
from experiments.core.environment import Launch
from experiments.core.errors import UsageError
from experiments.core.experiment import Recipe

_CONFIG = config_flags.DEFINE_config_file("config", help_string="Path of the config file.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where config, metrics and checkpoints are kept.")
_CHECK = flags.DEFINE_bool(
    "check",
    False,
    "Only say whether the config can be run in the workdir, on as many devices as JAX sees; neither accelerators nor "
    "data are asked for.",
)
_CHECK_PROCESSES = flags.DEFINE_integer(
    "check_processes", 1, "With --check: how many processes there will be, which JAX cannot see.", lower_bound=1
)


def main(recipe: Recipe) -> None:
    """Runs the experiment that `recipe` makes of the config given on the command line."""
    app.run(
        lambda _: _one_line_errors(lambda: _run(recipe)),
        flags_parser=lambda argv: _one_line_errors(lambda: _parse(argv)),
    )


def _parse(argv: list[str]) -> list[str]:
    # absl reports at INFO under app.run, and orbax has much to report; --verbosity still decides.
    logging.set_verbosity(logging.ERROR)
    try:
        rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise UsageError(str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _explained(error, argv) from error
    if len(rest) > 1:
        raise UsageError(f"unexpected argument {rest[1]!r}: every option starts with --")
    if flags.FLAGS["config"].value is None:
        raise UsageError("--config is required, for example --config=configs/mnist_pruning.py")
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    if not Path(path.partition(":")[0]).is_file():
        raise UsageError(f"--config={path}: there is no such file")
    if not _WORKDIR.value:
        raise UsageError("--workdir is required: the directory that keeps the run")
    return rest


def _explained(error: Exception, argv: list[str]) -> Exception:
    """What to raise for an error of ml_collections: a `UsageError` unless the config file is broken."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UsageError):  # raised in the config file itself
            return cause
        cause = cause.__cause__ or cause.__context__
    message = str(error)
    if message.startswith("Error whilst parsing config file"):
        return error
    # It names the last part of a misspelt field, in quotes twice over, and at times the right one.
    if misspelt := re.match(r"\W*(\w+)", message):
        for argument in argv:
            option = argument.partition("=")[0]
            if option.split(".")[-1] == misspelt[1]:
                suggestion = re.search(r'Did you mean "(\w+)"', message)
                hint = f": did you mean {suggestion[1]}?" if suggestion else ""
                return UsageError(f"{option}: the config has no field {misspelt[1]!r}{hint}")
    return UsageError(message)


def _run(recipe: Recipe) -> None:
    if _CHECK.value:
        train.check(recipe, mesh.of_processes(_CONFIG.value, _CHECK_PROCESSES.value), _WORKDIR.value)
        print("the config can be run")
        return
    launch = Launch(
        command=["python", "-m", f"experiments.{recipe.name}", *sys.argv[1:]],
        overrides={
            field: str(value) for field, value in config_flags.get_override_values(flags.FLAGS["config"]).items()
        },
    )
    distributed.initialize()
    with distributed.leaving_promptly():
        train.run(recipe, _CONFIG.value, _WORKDIR.value, launch)


def _one_line_errors(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
