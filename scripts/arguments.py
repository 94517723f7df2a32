"""Types of the options of commands, for argparse, which puts the name of the option before what they say."""

import argparse
import re
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


def matching(pattern: str, allowed: str) -> Callable[[str], str]:
    """A type of `argparse` options: what matches the regular expression, which `allowed` puts in words."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"must be {allowed}, got {text!r}")
        return text

    return parse


FLAG = matching(r"-\S.*", "an option that begins with -, such as --name=value")
ZONE = matching(r"[a-z]+-[a-z]+\d+-[a-z]", "a zone of Google Cloud, such as us-east1-d")
NAME = matching(
    r"[a-z]([-a-z0-9]{0,59}[a-z0-9])?", "at most 61 lower-case letters, digits and -, as Google Cloud has names"
)
