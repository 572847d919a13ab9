"""Answer signals, a Ctrl-C with one line. This module imports little, so that a command may begin with it."""

import signal
import sys


def show_interrupts(line: str) -> None:
    """Print one line at a Ctrl-C that nothing handles. The process still ends by the signal (130 in a shell)."""
    old = sys.excepthook
    sys.excepthook = lambda kind, *rest: print(line, file=sys.stderr) if kind is KeyboardInterrupt else old(kind, *rest)


def die_with_parent() -> None:
    """Ask the kernel to kill this process, a program that a stage started, when the stage is killed.

    An orphan would keep writing beside a rerun.
    """
    if sys.platform == "linux":
        import ctypes  # here, as few processes need it

        pr_set_pdeathsig = 1  # linux/prctl.h
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def handle_signals() -> None:
    """Treat SIGHUP (the terminal was closed) like SIGTERM, unless ``nohup`` ignores it: finish running jobs, then exit.

    A second Ctrl-C, which does not wait for running jobs, is shown in one line.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    show_interrupts("stopped at once. The same command continues the run")
