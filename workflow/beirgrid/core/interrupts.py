"""Ctrl-C in one line. This module imports no other, so that a command may begin with it."""

import sys


def show_interrupts(line: str) -> None:
    """Show a Ctrl-C that nothing handles in one line. The process still ends by the signal, which a shell calls 130."""
    shown = sys.excepthook
    sys.excepthook = lambda kind, *of: print(line, file=sys.stderr) if kind is KeyboardInterrupt else shown(kind, *of)
