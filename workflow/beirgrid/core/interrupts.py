"""Ctrl-C in one line. This module imports little, so that a command may begin with it.

``python interrupts.py snakemake OPTIONS`` is Snakemake, which shows a Ctrl-C in one line also while it is imported.
"""

import os
import signal
import sys


def show_interrupts(line: str) -> None:
    """Show a Ctrl-C that nothing handles in one line. The process still ends by the signal, which a shell calls 130."""
    shown = sys.excepthook
    sys.excepthook = lambda kind, *of: print(line, file=sys.stderr) if kind is KeyboardInterrupt else shown(kind, *of)


def end_at_interrupts(line: str) -> None:
    """Let a Ctrl-C end the process wherever it stands, until ``raise_interrupts``: imports may swallow an exception."""

    def end(number: int, _: object) -> None:
        os.write(2, f"{line}\n".encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    if callable(signal.getsignal(signal.SIGINT)):  # not ignored, as in a shell's background
        signal.signal(signal.SIGINT, end)


def raise_interrupts() -> None:
    """Make a Ctrl-C Python's exception again."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    stopped = "stopped before any job began"
    show_interrupts(stopped)
    end_at_interrupts(stopped)
    sys.argv.remove("snakemake")  # by which ``processes`` knows it
    from snakemake.cli import main

    raise_interrupts()
    main()
