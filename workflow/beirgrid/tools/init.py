"""``beirgrid init``: write a commented grid file, from options or answers to questions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import BeirgridError
from .configfiles import merged
from .run import add_choices, as_yaml, describe, describe_collection, names

_HEAD = """\
# A grid: every system on every dataset. Run it:
#   beirgrid plan {file}    jobs, hours, downloads and disk
#   beirgrid run {file}     one machine; --profile slurm for a cluster
# `beirgrid list systems`, `list models`, `list datasets` and `list metrics` show what can stand here.
"""
_MORE = """
# More settings, with their defaults (docs/configuration.md has all of them):
# device: auto              # cpu or cuda
# encode: {precision: auto} # float32 is exact; bfloat16 and float16 are faster on most GPUs
# retrieve: {depth: 1000}   # documents per query
#
# A model of your own:
# models:
#   my-model: {family: dense, path: my-model, similarity: cosine, max_length: 256}
# systems:
#   my-model: {retriever: my-model}
#
# Documents of your own: a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv (docs/datasets.md):
# corpora:
#   notes: {source: local, path: notes}
# datasets:
#   notes: {corpus: notes, split: test}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``beirgrid init``."""
    parser.add_argument("file", nargs="?", default=Path("grid.yaml"), type=Path, help="file to write")
    add_choices(parser)
    parser.add_argument("--collection", default="", metavar="FOLDER", help="documents of your own, in BEIR layout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the file."""
    if args.file.exists():
        raise BeirgridError(f"{args.file} exists: name another file, or remove it")
    if not (args.systems or args.model or args.datasets or args.collection):
        if not sys.stdin.isatty():
            raise BeirgridError("what should the grid hold? Add --systems, --model, --datasets or --collection")
        _ask(args)
    args.systems = args.systems or ([] if args.model else ["bm25", "minilm"])
    more: dict[str, Any] = {}
    if args.collection:
        name, more = describe_collection(args.collection)
        args.datasets = [*args.datasets, name]
    content = {**more, **describe(args)}
    merged([], more=content)
    files.replace_text(args.file, _HEAD.format(file=args.file) + as_yaml(content) + _MORE)
    print(f"{args.file} is written. Next: beirgrid plan {args.file}")


def _ask(args: argparse.Namespace) -> None:
    """Fill in the options from a person's answers; an empty answer takes the default."""
    print("An empty answer takes what stands in brackets.")
    args.collection = input("Folder with documents of your own, in BEIR layout [none]: ").strip()
    if not args.collection:
        args.datasets = names(input("Datasets, with commas between them [scifact]: "))
    args.model = input("A model to evaluate: folder, id on the Hugging Face hub, or name [none]: ").strip()
    if args.model:
        args.against = names(input("Systems to compare it with [bm25]: "))
    else:
        args.systems = names(input("Systems, with commas between them [bm25, minilm]: "))
