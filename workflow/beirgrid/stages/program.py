"""Stages of systems that are external programs: index a corpus, and retrieve a run for a dataset."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from ..collections import collection
from ..config.systems import command_words, places_of
from ..config.values import Size
from ..core import environment, files, provenance
from ..core.errors import BeirgridError, DataError, printable, quoted, say
from ..core.provenance import Artifact, Record
from ..pipeline.program import IndexProgram, RetrieveProgram
from ..runs import imported
from ..runs.limits import Limits

Version = Annotated[str, "version of the program, for the record"]
Threads = Annotated[Size, "cores that the program may use"]
# Environment variables of our own jobs, which must not reach another Python.
_OURS = ("PYTHONPATH", "PYTHONSAFEPATH")
# Lines of a program's output that an error message repeats.
_TAIL = 10
# Seconds that the rest of the output may take after a program has ended.
_LAST_WORDS = 5.0


def index_program(
    *,
    command: Annotated[str, "command that reads {corpus} and fills {index}"],
    version: Version = "",
    corpus: Annotated[Artifact, "corpus.parquet"],
    threads: Threads = 1,
    output: Annotated[Path, "folder to write"],
    record: Record,
) -> None:
    """Run a program that indexes a corpus.

    Raises:
        BeirgridError: the command cannot start, fails, or leaves the folder empty.
    """
    settings = {"command": command} | ({"version": version} if version else {})
    inputs = {"corpus": corpus}
    with provenance.record(IndexProgram.stamp, record, settings, [output], inputs=inputs) as facts:
        with files.atomic(output, directory=True) as index, files.scratch(f"{output}-input") as folder:
            folder.mkdir()
            facts["build_seconds"] = run_command(command, folder, corpus, {}, {"index": index, "threads": threads})
            if not files.size(index):
                raise BeirgridError("the index_command wrote nothing to {index}")
        facts.update(documents=collection.count(corpus), bytes=files.size(output))


def retrieve_program(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    command: Annotated[str, "command that reads {queries} and writes {run}"],
    version: Version = "",
    index: Annotated[Artifact | None, "index from the program"] = None,
    corpus: Annotated[Artifact, "corpus.parquet"],
    queries: Annotated[Artifact, "queries.parquet"],
    depth: Annotated[Size, "documents per query"] = 1000,
    allow: imported.Allow = (),
    threads: Threads = 1,
    output: Annotated[Path, "run to write, .run.gz"],
    record: Record,
) -> None:
    """Run a program that searches a corpus, and check its run like any external run.

    Raises:
        BeirgridError: the command cannot start, fails, writes no run, or changes its index.
        DataError: the run cannot be read, or does not match the dataset and its corpus.
    """
    settings = {"command": command, "depth": depth}
    settings |= ({"version": version} if version else {}) | ({"allow": list(allow)} if allow else {})
    inputs = {"program": index, "corpus": corpus, "queries": queries}
    with provenance.record(RetrieveProgram.stamp, record, settings, [output], inputs=inputs) as facts:
        texts, limits = collection.read_queries(queries), Limits(queries, depth)
        with files.scratch(f"{output}-input") as folder:
            folder.mkdir()
            run = folder / "run.trec"
            places = {"run": run, "depth": limits.searched(collection.count(corpus)), "threads": threads} | (
                {"index": index} if index else {}
            )
            facts["search_seconds"] = run_command(command, folder, corpus, texts, places)
            if index:
                _check_unchanged(index)
            if not run.is_file():
                raise BeirgridError("the command wrote no file {run}")
            try:
                facts |= imported.adopt(run, system, queries, corpus, depth, allow, output)
            except DataError as error:
                raise DataError(str(error).replace(str(run), f"the run of {system!r}")) from None
        facts["source"] = system


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
    words = command_words(command, absolute)
    say(f"$ {shlex.join(words)}")
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name not in _OURS},
            encoding="utf-8",
            errors="replace",
            preexec_fn=environment.die_with_parent,
        )
    except OSError as error:
        raise BeirgridError(f"the command cannot start: {quoted(words[0])}: {error.strerror}") from None
    said: deque[str] = deque(maxlen=_TAIL)
    reader = threading.Thread(target=_log, args=(process.stdout, said), daemon=True)
    reader.start()
    process.wait()
    reader.join(_LAST_WORDS)  # a server that the command has started may hold its output open for ever
    if status := process.returncode:
        how = f"ended with exit status {status}" if status > 0 else f"was killed by signal {-status}"
        raise BeirgridError(f"the command {how}. Its last lines: {' | '.join(filter(None, said)) or 'none'}")
    return round(time.monotonic() - started, 3)


def _log(output: Iterable[str], said: deque[str]) -> None:
    """Log the lines of a program as they come, and keep the last ones."""
    for line in output:
        say(line.rstrip("\n"))
        said.append(printable(line.strip()))
