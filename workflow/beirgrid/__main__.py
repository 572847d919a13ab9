"""Command line of the stages: ``python -m beirgrid <stage> --help``."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.pop(0)  # the folder that the command runs in: what lies there (a json.py) is data

import argparse
import errno
import importlib
import os

from . import __version__
from .core.errors import BeirgridError

# stage: (module, function that declares its arguments, what it does)
_STAGES = {
    "fetch": ("stages.fetch", "add_arguments", "fetch a corpus, a dataset or a model's checkpoint, and check it"),
    "train": ("stages.train", "add_arguments", "train a cross-encoder on pairs from a corpus"),
    "generate": ("stages.generate", "add_arguments", "write training queries for the documents of a corpus"),
    "mine": ("stages.mine", "add_arguments", "find documents that training queries are confused with"),
    "label": ("stages.label", "add_arguments", "score training queries with a cross-encoder teacher"),
    "adapt": ("stages.adapt", "add_arguments", "adapt a dense model to a corpus"),
    "encode": ("stages.encode", "add_arguments", "encode one shard of a corpus to vectors"),
    "expand": ("stages.expand", "add_arguments", "expand the documents of one shard of a corpus for BM25"),
    "index": ("stages.index", "add_arguments", "index a corpus for BM25, or a shard of vectors"),
    "retrieve": ("stages.retrieve", "add_arguments", "retrieve the top documents per query"),
    "score": ("stages.rerank", "add_score_arguments", "score (query, document) pairs with a cross-encoder, each once"),
    "rerank": ("stages.rerank", "add_arguments", "reorder the top of a run by stored pair scores"),
    "fuse": ("stages.fuse", "add_arguments", "fuse several runs into one"),
    "evaluate": ("stages.evaluate", "add_arguments", "compute the metrics of a run"),
    "aggregate": ("stages.aggregate", "add_arguments", "make the tables of a grid, with verdicts"),
    "plan": ("tools.plan", "add_arguments", "say what a grid will take: jobs, hours, downloads, disk"),
    "status": ("tools.status", "add_arguments", "show what a grid is doing, or what became of it"),
    "report": ("stages.report", "add_arguments", "write the report of a grid"),
}


def _parser(stage: str | None) -> argparse.ArgumentParser:
    """Return the parser; only the module of the named stage is imported."""
    parser = argparse.ArgumentParser(
        prog="python -m beirgrid",
        description="One stage of the beirgrid workflow. An argument @FILE stands for the lines of that file.",
        fromfile_prefix_chars="@",
    )
    parser.add_argument("--version", action="version", version=f"beirgrid {__version__}")
    stages = parser.add_subparsers(dest="stage", required=True, metavar="stage")
    for name, (module, function, purpose) in _STAGES.items():
        subparser = stages.add_parser(name, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")
        if name == stage:
            getattr(importlib.import_module(f"beirgrid.{module}"), function)(subparser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one stage; return 0, or 1 after one message that says what to change."""
    arguments = sys.argv[1:] if arguments is None else arguments
    stage = next((a for a in arguments if a in _STAGES), None)
    try:
        args = _parser(stage).parse_args(arguments)  # artifacts are held against their records here
        args.run(args)
    except BeirgridError as error:
        message = str(error)
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
    else:
        return 0
    print(f"beirgrid {stage}: error: {message}", file=sys.stderr)
    return 1


def _explain(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}: {error.strerror}. Nothing half-written is left; free space and run again"
    return f"{error.strerror or error}{where}"


if __name__ == "__main__":
    sys.exit(main())
