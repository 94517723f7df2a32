"""Runs an experiment as its command line does, and sends it a signal in mid-training: by `processes.signalled`.

    python -m tests.experiments.killed SIGNAL ROWS SECONDS MODULE --config=... --workdir=...

A test that waits for the rows of another process has to let it train long, for it may itself be kept waiting. Here the
signal comes from within, so many seconds after the row of that number is on disk, however short the run is.
"""

import os
import runpy
import signal
import sys
import threading

from experiments.core.record import metrics


def kill_after(number: signal.Signals, rows: int, seconds: float) -> None:
    """Has this process sent a signal, `seconds` after its run has come to so many rows."""
    append = metrics.Writer.append

    def counted(writer: metrics.Writer, row: metrics.Row) -> None:
        append(writer, row)
        if len(writer.rows) == rows:
            threading.Timer(seconds, os.kill, (os.getpid(), number)).start()

    metrics.Writer.append = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    _, name, rows, seconds, module, *arguments = sys.argv
    kill_after(signal.Signals[name], int(rows), float(seconds))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
