"""Types of the options of commands, for argparse, which puts the name of the option before what they say."""

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """Type of an option that takes whole numbers from ``least`` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return parse
