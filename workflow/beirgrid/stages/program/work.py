"""Stages of systems that are external programs: index a corpus, and retrieve a run for a dataset."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from ...collections import collection
from ...config.systems import command_words, places_of
from ...config.values import Size
from ...core import files, provenance
from ...core.errors import BeirgridError, DataError, quoted, say
from ...core.interrupts import die_with_parent
from ...core.provenance import Artifact, Facts
from ...runs.opened import NotSearchable, OpenPart, OpenSystem
from ...runs.restrictions import Allow, Restrictions, adopt
from ...runs.runs import EMPTY, Run, read

Version = Annotated[str, "version of the program, for the record"]
Threads = Annotated[Size, "cores that the program may use"]
# Environment variables of our own jobs, which must not reach another Python.
_OURS = ("PYTHONPATH", "PYTHONSAFEPATH")


def index_program(
    *,
    command: Annotated[str, "command that reads {corpus} and fills {index}"],
    version: Version = "",
    corpus: Annotated[Artifact, "corpus.parquet"],
    threads: Threads = 1,
    output: Annotated[Path, "folder to write"],
) -> Facts:
    """Run a program that indexes a corpus.

    Raises:
        BeirgridError: the command cannot start, fails, or leaves the folder empty.
    """
    with files.atomic(output, directory=True) as index, files.scratch(f"{output}-input") as folder:
        folder.mkdir()
        seconds = run_command(command, folder, corpus, {}, {"index": index, "threads": threads})
        if not index.is_dir() or not files.size(index):
            raise BeirgridError("the index_command wrote nothing to the folder {index}, or replaced it by a file")
    return {"build_seconds": seconds, "documents": collection.count(corpus), "bytes": files.size(output)}


def retrieve_program(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    command: Annotated[str, "command that reads {queries} and writes {run}"],
    version: Version = "",
    index: Annotated[Artifact | None, "index from the program"] = None,
    corpus: Annotated[Artifact, "corpus.parquet"],
    queries: Annotated[Artifact, "queries.parquet"],
    depth: Annotated[Size, "documents per query"] = 1000,
    allow: Allow = (),
    threads: Threads = 1,
    output: Annotated[Path, "run to write, .run.gz"],
) -> Facts:
    """Run a program that searches a corpus, and check its run like any external run.

    Raises:
        BeirgridError: the command cannot start, fails, writes no run, or changes its index.
        DataError: the run cannot be read, or does not match the dataset and its corpus.
    """
    texts = collection.read_queries(queries)
    limits = Restrictions(queries, depth)
    with files.scratch(f"{output}-input") as folder:
        folder.mkdir()
        run = folder / "run.trec"
        places = {"run": run, "depth": limits.searched(collection.count(corpus)), "threads": threads} | (
            {"index": index} if index else {}
        )
        seconds = run_command(command, folder, corpus, texts, places)
        if index:
            _check_unchanged(index)
        if not run.is_file():
            raise BeirgridError("the command wrote no file {run}")
        try:
            facts = adopt(run, system, queries, corpus, depth, allow, output)
        except DataError as error:
            raise DataError(str(error).replace(str(run), f"the run of {system!r}")) from None
    return {"search_seconds": seconds, **facts, "source": system}


def open_retrieve_program(
    open_part: OpenPart,
    *,
    command: str,
    version: str,
    index: Path | None,
    corpus: Path,
    queries: Path,
    depth: int,
    allow: Allow,
    threads: int,
) -> OpenSystem:
    """Open a program. It starts anew whenever it ranks.

    Raises:
        NotSearchable: the program reads the whole corpus each time.
    """
    if "corpus" in places_of(command):
        raise NotSearchable("its command reads the whole {corpus} whenever it starts")
    limits = Restrictions(queries, depth)
    searched = limits.searched(collection.count(corpus))

    def rank(texts: Mapping[str, str]) -> Run:
        names = {f"q{number}": query for number, query in enumerate(texts, start=1)}
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run.trec")
            places = {"run": run, "depth": searched, "threads": threads, "index": index}
            asked = {name: texts[query] for name, query in names.items()}
            run_command(command, Path(folder), corpus, asked, places)
            found = read(run)
        return {query: limits.ranking(query, *found.get(name, EMPTY)) for name, query in names.items()}

    return OpenSystem(rank, depth, starts=True)


def _check_unchanged(index: Path) -> None:
    """Raise BeirgridError if a search changed its index, which the searches of other datasets read."""
    try:
        provenance.artifact(index)
    except DataError as error:
        raise BeirgridError(f"the command changed its {{index}}, which it may only read: {error}") from None


def run_command(
    command: str, folder: Path, corpus: Path, queries: Mapping[str, str], places: Mapping[str, object]
) -> float:
    """Run a program's command on files in BEIR's layout, without qrels.

    Args:
        command: the command line, split like a shell does. No shell runs it.
        corpus: corpus.parquet, which is exported if the command names {corpus}.
        places: values of other names in braces. Paths are made absolute.

    Returns:
        the command's seconds.

    Raises:
        BeirgridError: the command cannot start, or fails.
    """
    given = {"corpus": folder / "corpus.jsonl", "queries": folder / "queries.jsonl", **places}
    if "corpus" in places_of(command):
        collection.write_jsonl(collection.read_documents(corpus), folder / "corpus.jsonl")
    rows = (json.dumps({"_id": query, "text": text}, ensure_ascii=False) + "\n" for query, text in queries.items())
    files.write_text(folder / "queries.jsonl", "".join(rows))
    absolute = {name: place.absolute() if isinstance(place, Path) else place for name, place in given.items()}
    started = time.monotonic()
    # A server that the program starts may keep its output open, so that a pipe would have no end.
    with tempfile.NamedTemporaryFile() as output, Path(output.name).open(errors="replace") as printed:
        try:
            if not (words := command_words(command, absolute)):
                raise ValueError("it has no words")
            say(f"$ {shlex.join(words)}")
            program = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={name: value for name, value in os.environ.items() if name not in _OURS},
                preexec_fn=die_with_parent,
            )
        except (OSError, ValueError) as error:
            raise BeirgridError(f"the command {quoted(command)} cannot start: {error}") from None
        while program.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                program.wait(0.2)
            for line in printed:
                say(line.rstrip("\n").expandtabs())
    if status := program.returncode:
        how = f"ended with exit status {status}" if status > 0 else f"was killed by signal {-status}"
        raise BeirgridError(f"the command {how}. Its output is above")
    return round(time.monotonic() - started, 3)
