"""Command line: ``beirgrid <command> --help``, or ``python -m beirgrid``."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.pop(0)  # the working directory: files there (a json.py) are data

import os

from .tools import forks

if __name__ == "__main__" and os.environ.get(forks.FOLDER) and sys.argv[1:2] == ["--settings"]:
    forks.run()

import argparse
import difflib
import errno
import importlib
import re
import select
import signal
import textwrap
from typing import Any, NoReturn

from .core import environment, provenance, stages
from .core.cli import ASKED, CALL, WORD, add_options, read_files
from .core.errors import BeirgridError, log_to_standard_error, printable, say
from .core.version import dated_version

# Commands that are no stages, in the order of ``--help``: words, the function that they run, and what it does.
_TOOLS = {
    "demo": ("tools.run:add_demo_arguments", "run every kind of stage on the embedded collection"),
    "run": ("tools.run:add_arguments", "run a grid: a file, a ready-made grid, or systems and datasets"),
    "reproduce": ("tools.reproduce:add_arguments", "run a system where values of it are published, and compare"),
    "init": ("tools.init:add_arguments", "write a grid file with comments, from options or a few questions"),
    "list": ("tools.catalogue:add_arguments", "list what is registered, what it needs, and what is here"),
    "plan": ("tools.plan:add_arguments", "estimate what a grid will take: jobs, hours, downloads, disk"),
    "status": ("tools.status:add_arguments", "show what a grid is doing, or how it ended"),
    "report": ("tools.refresh:report", "make the tables and the report of a grid from its finished cells"),
    "show": ("tools.show:add_arguments", "show the scores of a system on a dataset, or what one query found"),
    "search": ("tools.search:add_arguments", "search with a system of a finished grid"),
    "serve": ("tools.serve:add_arguments", "serve reports and a search over finished indexes to a browser"),
    "compare": ("tools.compare:add_arguments", "compare two systems, grids or results folders, cell by cell"),
    "export table": ("exchange.paper_table:export_table", "print a table for a paper, in LaTeX or Markdown"),
    "export trec": ("exchange.trec:export_trec", "write runs and qrels in TREC format"),
    "export ir-metadata": ("exchange.trec:export_ir_metadata", "write TREC runs that begin with ir_metadata 0.1"),
    "export mteb": ("exchange.mteb:export_mteb", "write scores as MTEB's JSON"),
    "export huggingface": ("exchange.hub:export_huggingface", "write scores as YAML for model pages of the hub"),
    "export ro-crate": ("exchange.crate:export_ro_crate", "write a Workflow Run RO-Crate"),
    "set": ("tools.evaluation_sets:add_arguments", "make an evaluation set: documents, queries, judgements"),
    "latency": ("tools.latency:latency", "measure how long systems take for a query"),
    "doctor": ("tools.doctor:add_arguments", "check this machine, the file system, the network and SLURM"),
    "why": ("tools.why:add_arguments", "show what made a file, and whether the next run makes it again"),
}
# A module is imported when its command runs.
COMMANDS = _TOOLS | {words: (stage.function, stage.help) for words, stage in stages.COMMANDS.items()}
# Words with commands under them, and what these have in common.
_GROUPS = {
    "fetch": "fetch a corpus, dataset, checkpoint, run or published expansion, and check it",
    "index": "index a corpus for BM25, or one shard of vectors",
    "retrieve": "retrieve the top documents per query",
    "export": "write the results of a grid for other software",
}


_EXAMPLES = """\
examples:
  beirgrid demo                                         a small collection, some minutes
  beirgrid run --systems bm25,minilm --datasets scifact
  beirgrid run --model ./my-model --against bm25 --datasets scifact,nfcorpus
  beirgrid plan grid.yaml                               jobs, hours, downloads and disk before the run
  beirgrid run grid.yaml --profile slurm                on a cluster
  beirgrid status                                       what runs, what failed, time left

The rules run a command for each stage: {stages}.

An argument @FILE stands for the lines of FILE, and @- for the options in a JSON object on standard input."""


class _Version(argparse.Action):
    """Ask git for the commit only when the version is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"beirgrid {dated_version()}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that declares the options of its command when the command is parsed."""

    function: str = ""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how the command is used, as argparse does, and suggest the nearest command."""
        unknown = re.match(r"argument (?:command|kind): invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if unknown and (near := difflib.get_close_matches(unknown[1], re.findall(r"[\w-]+", unknown[2]), n=1)):
            message = f"there is no command {unknown[1]!r}; did you mean {near[0]!r}?"
        super().error(printable(message))

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        if self.function:
            module, _, name = self.function.partition(":")
            function = getattr(importlib.import_module(f"beirgrid.{module}"), name)
            self.function = ""
            if name.endswith("_arguments"):
                function(self)
            else:
                add_options(self, function)
        return super().parse_known_args(*arguments, **options)


def _parser() -> _Parser:
    parser = _Parser(
        prog="beirgrid",
        description="Evaluate retrieval systems on BEIR's collections and on your own.",
        epilog=_EXAMPLES.format(stages=_stages()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, its commit and the day of that")
    parser.add_argument("--settings", metavar="DIGEST", help="digest of the command's settings, for its record")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    groups: dict[str, Any] = {}
    for words, (function, purpose) in COMMANDS.items():
        word, _, kind = words.partition(" ")
        listed: dict[str, Any] = {} if words in stages.COMMANDS else {"help": _GROUPS[word] if kind else purpose}
        if kind and word not in groups:
            group = commands.add_parser(word, description=_sentence(_GROUPS[word]), **listed)
            groups[word] = group.add_subparsers(dest=WORD, required=True, metavar="kind")
        if kind:
            listed = {"help": purpose}
        place = groups[word] if kind else commands
        place.add_parser(kind or word, description=_sentence(purpose), **listed).function = function
    return parser


def _stages() -> str:
    """Return the names of the stages' commands, in lines."""
    words = dict.fromkeys(words.partition(" ")[0] for words in stages.COMMANDS)
    return textwrap.fill(", ".join(words), 75).replace("\n", "\n  ")


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed words of a command; words that it does not know are Snakemake's if it runs Snakemake."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    args: argparse.Namespace
    args, others = parser.parse_known_args(arguments)
    if hasattr(args, "snakemake"):
        args.snakemake = others
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    return args


def _sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit status: 0, or 1 or what the error says after one message on what to change."""
    log_to_standard_error()
    status = 1
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        environment.check_names(*arguments)
        arguments = read_files(arguments)
        args = _parse(arguments)  # compares artifacts with their records
        provenance.use_command(arguments, args.settings, ASKED.get())
        call = getattr(args, CALL) if hasattr(args, CALL) else args.run
        ended = int(call(args) or 0)
        if sys.stdout:  # none where the shell closed it (>&-)
            sys.stdout.flush()  # here, where a full disk has a message
        return ended
    except BeirgridError as error:
        message, status = str(error), error.exit_status
    except BrokenPipeError as error:
        if _reader_has_left():
            return 128 + signal.SIGPIPE  # as the shell says of a command that the signal ended
        message = _explain(error)
    except OSError as error:
        message = _explain(error)
    except MemoryError:
        message = "out of memory; give the job more (mem_mb), or make encode.shard or encode.batch_tokens smaller"
    except Exception as error:
        if os.strerror(errno.ENOSPC) in str(error):  # as faiss and safetensors wrap it
            message = _explain(OSError(errno.ENOSPC, str(error)))
        elif "out of memory" in str(error):  # torch's own error for a GPU
            message = f"out of memory on the GPU; make encode.batch_tokens.cuda smaller ({error})"
        else:
            raise
    first_words = {words.partition(" ")[0] for words in COMMANDS}
    command = next((word for word in arguments if word in first_words), "")
    say(f"{f'beirgrid {command}'.strip()}: error: {message}")
    return status


def _reader_has_left() -> bool:
    """Tell whether standard output is a pipe that nobody reads any more (``| head``)."""
    output = select.poll()
    output.register(1)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _drop_unwritten() -> None:
    """Let Python not complain, when it ends, of output that could not be written: the command has told it."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: OSError) -> str:
    name = str(error.filename2 or error.filename or "")  # a file that is renamed has a temporary name first
    where = f" ({name if len(name) < 300 else f'{name[:200]} … {name[-50:]}'})" if name else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}: {error.strerror}. Nothing half-written is left; free space and run again"
    return f"{error.strerror or error}{where}"


def command() -> NoReturn:
    """Run the command of this process and end it."""
    for stream in (sys.stdout, sys.stderr):
        if stream and stream.encoding.lower() != "utf-8":  # a terminal in ASCII has no †
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.exit(main())
    finally:
        _drop_unwritten()


if __name__ == "__main__":
    command()
