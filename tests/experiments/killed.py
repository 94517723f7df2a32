"""Runs an experiment as its command line does, and kills it in mid-training: for `kill_at` of `processes.begin`.

    python -m tests.experiments.killed ROWS SECONDS MODULE --config=... --workdir=...

A test that waits for the rows of another process has to let it train long, for it may itself be kept waiting. Here a
run is killed from within, so many seconds after the row of that number is on disk, however short it is.
"""

import os
import runpy
import signal
import sys
import threading

from experiments.core import metrics


def kill_after(rows: int, seconds: float) -> None:
    """Has this process killed by SIGKILL, `seconds` after it has written so many rows."""
    append = metrics.Writer.append

    def counted(writer: metrics.Writer, row: metrics.Row) -> None:
        append(writer, row)
        if len(writer.rows) == rows:
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()

    metrics.Writer.append = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    _, rows, seconds, module, *arguments = sys.argv
    kill_after(int(rows), float(seconds))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
