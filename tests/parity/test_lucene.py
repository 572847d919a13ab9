"""BM25 equals Anserini and pyserini, also for queries and languages that Lucene analyses in ways of its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import string
import subprocess
import sys
from pathlib import Path

import java_classes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import main, python, quick_first

from beirgrid.collections import collection
from beirgrid.config.query_changes import Rm3
from beirgrid.config.values import BM25_LANGUAGES
from beirgrid.core.errors import BeirgridError, DataError
from beirgrid.runs import runs
from beirgrid.search import lucene

DOCUMENTS = {
    "wings": "the wings of a supersonic aircraft in flow",
    "pipes": "laminar flow in pipes and titles",
    "parens": "retrieval systems rank documents by relevance",
    "numbers": "flight 12 of 1984 measured 3.5 percent drag",
    "cjk": "信息检索系统 情報検索 정보 검색",
    "web": "example.com serves index html pages over https",
}

# Queries that a person might type, and plain words that are the same bag of words.
SYNTAX = {
    "boolean words": ("wings AND NOT flow OR pipes", "wings flow pipes"),
    "plus and minus": ("+wings -flow", "wings flow"),
    "a phrase": ('"supersonic aircraft"', "supersonic aircraft"),
    "an open quote": ('"supersonic aircraft', "supersonic aircraft"),
    "a field": ("title: flow contents: wings id: pipes", "title flow contents wings id pipes"),
    "wildcards": ("wing* fl?w", "wing fl w"),
    "a trailing backslash": ("flow\\", "flow"),
    "JSON": ('{"query": {"match": "flow"}}', "query match flow"),
    "a tab": ("flow\twings", "flow wings"),
    "line ends": ("flow\nwings\r\npipes\r", "flow wings pipes"),
    "other line ends": ("flow\x0bwings\x0cpipes\x85drag\u2028rank\u2029web", "flow wings pipes drag rank web"),
    "NUL": ("flow\x00wings", "flow wings"),
    "a byte order mark": ("\ufeffflow \ufeffwings", "flow wings"),
    "many identical words": ("flow " * 5000, "flow " * 5000),
    "emoji beside words": ("flow 👩‍👩‍👧 🇩🇪 wings", "flow wings"),
    "only punctuation": ('"(+-&|!){}[]^~*?:\\/', ""),
    "only stop words": ("to be or not to be", ""),
    "only white space": (" \t\u3000\u00a0\n", ""),
    "nothing": ("", ""),
}


def _index(folder: Path, documents: dict[str, str], fields: str = "flat", language: str = "en") -> Path:
    source, index = folder / "source", folder / "index"
    source.mkdir()
    rows = [{"_id": name, "title": "", "text": text} for name, text in documents.items()]
    (source / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lucene.build_index(source, index, fields, language, threads=1, memory_mb=500)
    return index


def _search(index: Path, queries: dict[str, str], fields: str = "flat", language: str = "en", depth: int = 10):
    searcher = lucene.Searcher(index, fields=fields, language=language, k1=0.9, b=0.4, memory_mb=500)
    return searcher.search_all(queries, depth, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("fields", quick_first(["flat", "multifield"]))
def test_documents_and_scores_are_those_of_anserinis_command(tmp_path, fields):
    """Most documents tie with more than a hundred others, and Anserini separates their scores."""
    choose = random.Random(3)
    words = [f"word{number}" for number in range(30)]
    texts = [" ".join(choose.choices(words, k=choose.choice([3, 4, 40]))) for _ in range(300)]
    documents = {f"d{number}ä": choose.choice([*texts, "word1 word2", "word3"]) for number in range(1500)}
    queries = {str(number): " ".join(choose.choices(words, k=number + 1)) for number in range(8)}
    index = _index(tmp_path, documents, fields)
    (tmp_path / "topics.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in queries.items()))
    command = [lucene.java(), "-cp", lucene.jar(), "io.anserini.search.SearchCollection", "-index", index]
    command += ["-topics", tmp_path / "topics.tsv", "-topicReader", "TsvString", "-output", tmp_path / "run.trec"]
    command += ["-hits", "1000", "-bm25", "-bm25.k1", "0.9", "-bm25.b", "0.4"]
    command += ["-fields", "contents=1.0", "title=1.0"] if fields == "multifield" else []
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    expected: dict[str, tuple[list[str], list[float]]] = {query: ([], []) for query in queries}
    for line in (tmp_path / "run.trec").read_text(encoding="utf-8").splitlines():
        query, _, document, _, score, _ = line.split()
        expected[query][0].append(document)
        expected[query][1].append(float(score))
    assert _search(index, queries, fields, depth=1000) == expected


# Searches with RM3, and writes documents and scores as pyserini writes runs.
PYSERINI = """
import json, sys
from pyserini.search.lucene import LuceneSearcher
index, queries, parameters, found = sys.argv[1:]
searcher = LuceneSearcher(index)
searcher.set_rm3(*json.loads(parameters))
of_query = {}
for query, text in json.load(open(queries)).items():
    hits = searcher.search(text, k=100)
    of_query[query] = [hit.docid for hit in hits], [float(f"{hit.score:.6f}") for hit in hits]
json.dump(of_query, open(found, "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [(10, 10, 0.5), (3, 50, 0.9)])
def test_rm3_equals_pyserini(tmp_path, root, parameters):
    """Scores, ties and order, to the last digit; also of queries without words or documents."""
    demo = root / "workflow" / "resources" / "demo"
    (tmp_path / "source").mkdir()
    shutil.copy(demo / "corpus.jsonl", tmp_path / "source")
    index = tmp_path / "index"
    lucene.build_index(tmp_path / "source", index, "flat-vectors", "en", threads=2, memory_mb=800)
    rows = [json.loads(line) for line in (demo / "queries.jsonl").read_text().splitlines()]
    queries = {row["_id"]: row["text"] for row in rows} | {"no words": "", "stop words": "to be", "unknown": "qqqzzz"}
    (tmp_path / "queries.json").write_text(json.dumps(queries))
    words = [index, tmp_path / "queries.json", json.dumps(parameters), tmp_path / "found.json"]
    subprocess.run([python(), "-c", PYSERINI, *map(str, words)], env=_with_java(), check=True, capture_output=True)
    expected = json.loads((tmp_path / "found.json").read_text())
    rm3 = Rm3(**dict(zip(("terms", "documents", "weight"), parameters, strict=True)))
    searcher = lucene.Searcher(index, fields="flat-vectors", language="en", k1=0.9, b=0.4, rm3=rm3, memory_mb=500)
    found = searcher.search_all(queries, 100, threads=2)
    assert {query: [*ranked] for query, ranked in found.items()} == expected
    assert found != _search(index, queries, "flat-vectors", depth=100)


def test_rm3_without_vectors_in_the_index_is_refused(tmp_path):
    index = _index(tmp_path, DOCUMENTS)
    searcher = lucene.Searcher(index, fields="flat", language="en", k1=0.9, b=0.4, rm3=Rm3(), memory_mb=500)
    with pytest.raises(BeirgridError, match="provide an index with stored doc vectors"):
        searcher.search("flow", 10)


def _with_java() -> dict[str, str]:
    """Return the environment in which pyserini's own import finds Java and its jar."""
    home = Path(lucene.java()).parent.parent
    java = {"JAVA_HOME": str(home), "JVM_PATH": str(home / "lib" / "server" / "libjvm.so")}
    java |= {"ANSERINI_CLASSPATH": "/nonexistent", "CLASSPATH": str(lucene.jar()), "OPENAI_API_KEY": "unused"}
    return {**os.environ, **java}


@pytest.mark.slow
@pytest.mark.parametrize("fields", ["multifield", "flat"])
def test_bm25_equals_pyserini(tmp_path, root, fields):
    demo = root / "workflow" / "resources" / "demo"
    (tmp_path / "source").mkdir()
    shutil.copy(demo / "corpus.jsonl", tmp_path / "source")
    lucene.build_index(tmp_path / "source", tmp_path / "index", fields, "en", threads=2, memory_mb=800)
    rows = [json.loads(line) for line in (demo / "queries.jsonl").read_text().splitlines()]
    queries = {row["_id"]: row["text"] for row in rows[::12]}
    found = _search(tmp_path / "index", queries, fields, depth=50)
    (tmp_path / "pyserini.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in queries.items()))
    command = [python(), "-m", "pyserini.search.lucene", "--index", str(tmp_path / "index")]
    command += ["--topics", str(tmp_path / "pyserini.tsv"), "--output", str(tmp_path / "pyserini.trec")]
    command += ["--bm25", "--hits", "50"]
    command += ["--fields", "contents=1.0", "title=1.0"] if fields == "multifield" else []
    subprocess.run(command, env=_with_java(), check=True, capture_output=True)
    expected = runs.read(tmp_path / "pyserini.trec")
    assert expected.keys() == {query for query, (ids, _) in found.items() if ids}
    for query, ranking in expected.items():
        ours = runs.canonical(query, *found[query])
        assert ours.ids == ranking.ids
        np.testing.assert_array_equal(ours.scores, ranking.scores)


def test_an_index_that_is_missing_is_named_in_one_line(tmp_path):
    (tmp_path / "index").mkdir()
    with pytest.raises(BeirgridError, match=r"^searching .*/index: .*IndexNotFoundException: no segments[^\n]*$"):
        _search(tmp_path / "index", {"q": "flow"})


@pytest.mark.slow
def test_a_java_that_is_not_there_is_named(tmp_path, root):
    options = {"fields": "flat", "language": "en", "k1": 0.9, "b": 0.4, "memory_mb": 500}
    code = f"import pathlib, beirgrid.search.lucene as l; l.Searcher(pathlib.Path(), **{options})"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "none"), "PYTHONPATH": str(root / "workflow")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=False)
    assert re.search(r"BeirgridError: Java cannot be loaded from .*/none \(.*: set JAVA_HOME to", done.stderr)


def test_a_query_is_a_bag_of_words_whatever_its_syntax(tmp_path):
    queries = {f"odd {name}": odd for name, (odd, _) in SYNTAX.items()}
    queries |= {f"plain {name}": plain for name, (_, plain) in SYNTAX.items()}
    found = _search(_index(tmp_path, DOCUMENTS), queries)
    assert list(found) == list(queries)
    for name, (_, plain) in SYNTAX.items():
        assert found[f"odd {name}"] == found[f"plain {name}"], name
        assert bool(found[f"odd {name}"][0]) == bool(plain), name


@pytest.mark.parametrize("fields", quick_first(["flat", "multifield"]))
def test_a_query_of_any_length_is_searched_whole(tmp_path, fields):
    """Lucene refuses more than 1,024 words and fields, unless it is told otherwise."""
    words, choose = [f"word{number}" for number in range(5000)], random.Random(7)
    queries = {
        "words": f"{' '.join(words)} flow",
        "english": f"flow {' '.join(words[:2000])}",
        "chinese": "flow " + "".join(choose.sample([chr(code) for code in range(0x4E00, 0x9FA5)], 2000)),
        "one token": "flow " + "".join(choose.choices(string.ascii_lowercase + string.digits, k=280_000)),
    }
    found = _search(_index(tmp_path, DOCUMENTS, fields), queries, fields)
    assert {name: ids for name, (ids, _) in found.items()} == {name: ["pipes", "wings"] for name in queries}
    assert found["words"] == found["english"]


def test_a_text_that_is_too_long_for_bm25_fails_the_index(tmp_path, capsys):
    """Anserini logs the exception, leaves the document out, and exits with 0."""
    texts = ["a", "a" * 20_000_001]
    pq.write_table(pa.table([["a", "long"], ["", ""], texts], collection.CORPUS_SCHEMA), tmp_path / "c.parquet")
    command = ["index", "lexical", "--corpus", "c.parquet", "--fields", "flat", "--output", "i", "--record", "i.json"]
    with contextlib.chdir(tmp_path):
        assert main(command) == 1
    assert "String value length (20000001) exceeds the maximum allowed (20000000" in capsys.readouterr().err


def test_any_path_is_opened_in_the_c_locale(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "für mich, $(信息) 'x' \"y\" {z} a;b"
    folder.mkdir()
    assert _search(_index(folder, DOCUMENTS), {"q": "supersonic"})["q"][0] == ["wings"]


@pytest.mark.parametrize("name", quick_first(["a\x01b", "\x0f", "tab\there"]))
def test_an_id_with_a_control_character_is_found(tmp_path, name):
    """Lucene prints such a byte as one hex digit. Indexes of earlier versions contain such ids."""
    index = _index(tmp_path, {name: "wings", "other": "zzz"})
    assert _search(index, {"q": "wings"})["q"][0] == [name]


@pytest.mark.parametrize("language", ["xx", "", "EN", "en ", "th"])
def test_a_language_that_lucene_would_read_as_english_is_refused(tmp_path, language):
    with pytest.raises(DataError, match="BM25 does not support the language"):
        _index(tmp_path, {"d": "wings"}, language=language)
    with pytest.raises(DataError, match="BM25 does not support the language"):
        _search(tmp_path, {"q": "wings"}, language=language)


@pytest.mark.parametrize(
    ("language", "text", "query", "found"),
    [
        ("fr", "ils cherchent des chevaux", "cheval", True),
        ("zh", "信息检索系统", "检索", True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("en", "ils cherchent des chevaux", "cheval", False),
                ("fi", "kirjastoissa", "kirjasto", True),
                ("te", "పుస్తకాలు చదివాడు", "పుస్తకాలు", True),
                ("sw", "vitabu vya shule", "vitabu", True),  # by white space
            )
        ),
    ],
)
def test_index_and_queries_are_read_in_the_corpuss_language(tmp_path, language, text, query, found):
    index = _index(tmp_path, {"d": text}, language=language)
    assert (_search(index, {"q": query}, language=language)["q"][0] == ["d"]) == found


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_java_loads_archived_classes_and_ignores_a_damaged_archive(tmp_path, monkeypatch, damaged):
    jar = tmp_path / "anserini.jar"
    jar.symlink_to(lucene.jar())
    monkeypatch.setattr(lucene, "jar", lambda: jar)
    if damaged:
        jar.with_suffix(".jsa").write_bytes(b"junk")
    else:
        java_classes.main()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Xlog:class+load:file={tmp_path}/loaded")
    index = _index(tmp_path, {"d": "flow"})
    (source,) = re.findall(r"io\.anserini\.index\.IndexCollection source: (.*)", (tmp_path / "loaded").read_text())
    assert ("shared objects file" in source) != damaged
    assert _search(index, {"q": "flow"})["q"][0] == ["d"]


@pytest.mark.slow
@pytest.mark.parametrize("language", BM25_LANGUAGES.split())
def test_every_language_is_indexed_and_searched(tmp_path, monkeypatch, language):
    """Anserini indexes in this process, because each Java takes a second to start."""

    def run(main: str, arguments: list[str], folder: Path, memory_mb: int) -> None:
        java_class = lucene._java_class(lucene._options(memory_mb, size=0, short=1))
        loggers = java_class("org.apache.logging.log4j.LogManager")
        before = loggers.getFactory()
        # The indexer works with this factory alone.
        loggers.setFactory(java_class("org.apache.logging.log4j.core.impl.Log4jContextFactory")())
        try:
            java_class(main).main([str(folder) if word == "." else word for word in arguments])
        finally:
            loggers.setFactory(before)

    monkeypatch.setattr(lucene, "_run", run)
    text = "informatica 2024"
    index = _index(tmp_path, {"d": text, "other": "zzz"}, language=language)
    many = " ".join(f"word{number}" for number in range(1500))
    found = _search(index, {"short": text, "long": f"{text} {many}", "none": "qqq"}, language=language)
    assert {query: ids for query, (ids, _) in found.items()} == {"short": ["d"], "long": ["d"], "none": []}
