"""Command line: ``beirgrid <command> --help``, or ``python -m beirgrid``."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.pop(0)  # the working directory: files there (a json.py) are data

from .core import interrupts

if sys.excepthook is sys.__excepthook__:
    interrupts.show_interrupts("stopped")

import os

from .execution import forks

if __name__ == "__main__" and os.environ.get(forks.FOLDER) and sys.argv[1:2] == ["stage"]:
    forks.run()

import argparse
import errno
import importlib
import select
import signal
from typing import Any, NoReturn

from .core.checkout import full_version
from .core.errors import BeirgridError, log_to_standard_error, printable, say

# Commands of ``--help``, in its order: words, function, help.
COMMANDS = {
    "demo": ("tools.run:demo", "run the workflow on the embedded collection"),
    "run": ("tools.run:run", "run a grid: a file, a ready-made grid, or systems and datasets"),
    "reproduce": ("tools.reproduce:reproduce", "run a system where values of it are published, and compare"),
    "list": ("tools.catalogue:catalogue", "list registered systems, datasets and models, and what is on this disk"),
    "plan": ("tools.plan:plan", "estimate the jobs, hours, downloads and disk of a grid"),
    "status": ("tools.status:status", "show the state of a grid's jobs"),
    "report": ("tools.reporting:report", "write the tables and the report of a grid from its finished cells"),
    "show": ("tools.search:show_cell", "show the scores of a system on a dataset, or what one query found"),
    "search": ("tools.search:search", "search with a system of a finished grid"),
    "compare": ("tools.compare:compare", "compare two systems, grids or results folders, cell by cell"),
    "export table": ("tools.export:export_table", "print a table for a paper, in LaTeX"),
    "export trec": ("tools.export:export_trec", "write runs and qrels in TREC format"),
    "export mteb": ("tools.export:export_mteb", "write scores as MTEB's JSON"),
    "export huggingface": ("tools.export:export_huggingface", "write scores as YAML for model pages of the hub"),
    "set init": ("sets.commands:init", "make a set from a folder of documents"),
    "set queries": ("sets.commands:add_queries", "take the queries from a file, sample or generate them"),
    "set pool": ("sets.commands:make_pool", "choose the pairs to judge, from finished runs"),
    "set judge": ("sets.commands:judge", "open the judging page for people, or let a model judge"),
    "set accept": ("sets.commands:accept", "make a version of the qrels from the judgements"),
    "set status": ("sets.commands:status", "show progress, agreement of judges, and statistical power"),
    "set check": ("sets.commands:check", "check documents, queries and qrels as a run does"),
    "set export": ("sets.commands:export", "write the set for BEIR, MTEB and ir_datasets, with a card"),
    "set compare": ("sets.commands:compare_versions", "compare the ranking of systems under two versions"),
    "latency": ("tools.latency:latency", "measure the latency of systems per query"),
    "doctor": ("tools.doctor:doctor", "check disk, Java, SLURM, PyTorch and GPU"),
    "evaluate": ("stages.evaluate.work:show_metrics", "compute the metrics of a run"),
    "analyse": ("tools.reporting:analyse", "make the BEIR paper's analyses from the runs of a grid"),
    "stage": ("graph.job:stage", "run one job by hand: a JSON object on standard input, as why prints it"),
    "why": ("tools.why:why", "show which job made a file, and whether the next run makes it again"),
}
_GROUPS = {
    "export": "write the results of a grid for other software",
    "set": "make an evaluation set: documents, queries, judgements",
}
_EXAMPLES = """\
examples:
  beirgrid demo                                         a small collection, less than a minute
  beirgrid run --systems bm25,minilm --datasets scifact
  beirgrid run --model ./my-model --against bm25 --datasets scifact,nfcorpus
  beirgrid plan grid.yaml                               jobs, hours, downloads and disk before the run
  beirgrid run grid.yaml --profile slurm                on a cluster
  beirgrid status                                       what runs, what failed, time left"""


class _Parser(argparse.ArgumentParser):
    """A parser that imports a command's module, and declares its options, when that command is parsed."""

    function: str = ""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error as argparse does, without control characters."""
        super().error(printable(message))

    def declare(self) -> None:
        """Import the command's module and declare its options, once."""
        if self.function:
            module, _, name = self.function.partition(":")
            function = getattr(importlib.import_module(f"beirgrid.{module}"), name)
            self.function = ""
            importlib.import_module("beirgrid.options").add_options(self, function)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        self.declare()
        return super().parse_known_args(*arguments, **options)


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse a command line. Unknown words are passed to Snakemake by the commands that run it, and are errors
    otherwise.
    """
    parser = _Parser("beirgrid", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.description = "Evaluate retrieval systems on BEIR's collections and on your own."
    parser.allow_abbrev = False
    version = full_version() if "--version" in arguments else ""  # which calls git
    about = "show the version and its commit"
    parser.add_argument("--version", action="version", version=f"beirgrid {version}", help=about)
    places = {"": parser.add_subparsers(dest="command", required=True, metavar="command")}
    completes = "_ARGCOMPLETE" in os.environ
    typed = os.environ.get("COMP_LINE", "").split()[1:] if completes else []
    for words, (function, purpose) in COMMANDS.items():
        group, _, word = words.rpartition(" ")
        if group not in places:
            parser_of_group = places[""].add_parser(group, help=_GROUPS[group])
            places[group] = parser_of_group.add_subparsers(dest="kind", required=True, metavar="kind")
        command = places[group].add_parser(word, help=purpose)
        command.function = function
        if typed[: 1 + bool(group)] == words.split():
            command.declare()  # now: argcomplete fails on options that are declared while it parses
    if completes:
        import argcomplete

        argcomplete.autocomplete(parser)
    args: argparse.Namespace
    args, others = parser.parse_known_args(arguments)
    args.typed = arguments
    if hasattr(args, "snakemake"):
        args.snakemake = others
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    return args


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status. A BeirgridError prints one message and sets the status."""
    log_to_standard_error()
    status = 1
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        args = _parse(arguments)
        ended = int(args.call(args) or 0)
        sys.stdout.flush()  # flushed here, so that a full disk gets its message
        return ended
    except BeirgridError as error:
        message = str(error)
        status = error.exit_status
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():
            return 128 + signal.SIGPIPE  # the shell's status for a command that this signal killed
        message = _explanation(error)
    except MemoryError:
        message = "out of memory; give the job more (mem_mb), or make encode.shard or encode.batch_tokens smaller"
    except Exception as error:
        if os.strerror(errno.ENOSPC) in str(error):  # faiss and safetensors wrap the OSError
            message = _explanation(OSError(errno.ENOSPC, str(error)))
        elif "out of memory" in str(error):  # raised by torch for a GPU
            message = f"out of memory on the GPU; make encode.batch_tokens.cuda smaller ({error})"
        else:
            raise
    words = 2 if {"stage", *_GROUPS}.intersection(arguments[:1]) else 1
    names = [word for word in arguments if not word.startswith("-")][:words]
    say(f"{' '.join(['beirgrid', *names])}: error: {message}")
    return status


def _reader_has_left() -> bool:
    """Tell whether standard output is a pipe whose reader has exited (``| head``)."""
    output = select.poll()
    output.register(1)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _explanation(error: OSError) -> str:
    name = error.filename2 or error.filename  # a rename has the temporary name in `filename`
    where = f" ({name})" if name else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}: {error.strerror}. Nothing half-written is left; free space and run again"
    return f"{error.strerror or error}{where}"


def command() -> NoReturn:
    """Run the command of this process and end it."""
    for stream in (sys.stdout, sys.stderr):
        if stream.encoding.lower() != "utf-8":  # an ASCII terminal cannot show †
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.exit(main())
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # which main has reported, and the interpreter would report again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    command()
