"""Run Snakemake for ``beirgrid run``, and answer a wrong option, and a Ctrl-C during its imports, with one line.

``python snakemake_command.py snakemake OPTIONS`` imports little before it listens for a Ctrl-C.
"""

import argparse
import atexit
import contextlib
import io
import os
import re
import sys

from beirgrid.core.interrupts import show_interrupts

# Marks the run after that of a gate.
_AFTER = "BEIRGRID_AFTER_GATE"


def usage_error(said: str) -> str:
    """Return the last line of an error of Snakemake's command line, without its usage of 200 lines.

    An unknown option has the nearest one beside it, of Snakemake's and of ``run``'s.
    """
    from beirgrid.core.errors import nearest
    from beirgrid.options import add_options
    from beirgrid.tools.run import run

    usage, _, error = said.rstrip().rpartition("\n")
    add_options(parser := argparse.ArgumentParser(), run)
    known = re.findall(r"--[a-z-]+", usage + parser.format_usage())
    unknown = re.search(r"unrecognized arguments: .*?(--[\w-]+)", error)
    return f"{error}{nearest(unknown[1], known) if unknown else ''}\n"


def main() -> bool:
    """Do what ``snakemake.main`` does, without the line "Using profiles …"; return whether the run succeeded."""
    from snakemake import cli

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser, arguments = cli.parse_args(sys.argv[1:])
        return bool(cli.args_to_api(arguments, parser))
    except SystemExit:
        if text := said.getvalue():
            sys.stderr.write(usage_error(text))
        raise
    except Exception as error:
        cli.print_exception(error)
        return False


def goes_on() -> bool:
    """Tell whether this process ran the gate of a grid, so that the other datasets are next."""
    from beirgrid.graph import gate

    return gate.forget() and _AFTER not in os.environ


if __name__ == "__main__":
    environment = dict(os.environ)
    show_interrupts("stopped before any job began")
    sys.argv.remove("snakemake")  # which tells people what the process is
    sys.argv[0] = "beirgrid"
    succeeded = main()
    if succeeded and goes_on():
        atexit._run_exitfuncs()  # a process that is replaced runs none
        again = [sys.executable, "-P", __file__, "snakemake", *sys.argv[1:]]
        environment[_AFTER] = "1"
        os.execve(sys.executable, again, environment)  # noqa: S606 - no shell is wanted
    sys.exit(not succeeded)
