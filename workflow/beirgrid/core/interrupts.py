"""Answer a Ctrl-C with one line. This module imports little, so that a command may begin with it.

``python interrupts.py snakemake OPTIONS`` runs Snakemake, and answers a Ctrl-C with one line during its imports, too.
"""

import contextlib
import importlib
import io
import sys


def show_interrupts(line: str) -> None:
    """Print one line at a Ctrl-C that nothing handles. The process still ends by the signal (130 in a shell)."""
    shown = sys.excepthook
    sys.excepthook = lambda kind, *of: print(line, file=sys.stderr) if kind is KeyboardInterrupt else shown(kind, *of)


if __name__ == "__main__":
    show_interrupts("stopped before any job began")
    sys.argv.remove("snakemake")  # by which ``processes`` knows it
    # By name, because jobs import this module where Snakemake is not installed.
    snakemake = importlib.import_module("snakemake.cli")
    # As ``snakemake.main``, without the line "Using profiles …".
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser, arguments = snakemake.parse_args(sys.argv[1:])
        succeeded = snakemake.args_to_api(arguments, parser)
    except SystemExit:
        sys.stderr.write(said.getvalue())
        raise
    except Exception as error:
        snakemake.print_exception(error)
        succeeded = False
    sys.exit(not succeeded)
