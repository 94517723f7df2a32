"""Mistakes that the user can put right, said in one line."""

import errno
import importlib.util
import os
import sys
from collections.abc import Callable

_FULL = (errno.ENOSPC, errno.EDQUOT)
_OF_THE_DISK = (*_FULL, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES)


def printable(text: str) -> str:
    """`text` with what a terminal would obey or hide written as escapes: control characters, marks of direction."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


class UsageError(Exception):
    """A mistake of the user's, said in a single line: what was wrong and what would be right."""

    def __init__(self, message: str):
        super().__init__(printable(" ".join(message.split())))


class DamagedError(UsageError):
    """A file does not hold what was once written to it."""

    def __init__(self, path: object, how: str, advice: str):
        """The message says of the file at `path` `how` it is damaged, and gives `advice`."""
        super().__init__(f"{path} is damaged ({how}): {advice}")


def first_line(error: BaseException) -> str:
    """Returns the first line of the message of a library's error; the kind of an error that has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _of_the_disk(error: BaseException) -> str | None:
    """Returns the reason if the disk is behind `error`, such as that it is full."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _OF_THE_DISK:
            return os.strerror(cause.errno) if cause.filename is None else f"{cause.filename}: {cause.strerror}"
        if any(os.strerror(number) in str(cause) for number in _FULL):  # said by a library in an error of its own
            return first_line(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def in_one_line(command: Callable[[], int]) -> int:
    """The exit status of `command`; 2 for a mistake of the user's, 1 for a full disk, each a line on stderr."""
    try:
        return command()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        if importlib.util.find_spec("tensorflow_datasets") is not None:
            raise
        print(
            printable(f"error: {first_line(error)}: `make demo` installs a part, `make install` all"), file=sys.stderr
        )
        return 2
    except Exception as error:
        if reason := _of_the_disk(error):
            said = printable(f"error: {reason}; what was saved is intact: run it again and it resumes")
            print(said, file=sys.stderr)
            return 1
        raise
