"""Queries and languages that Lucene analyses differently from plain English text."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import quick_first

from beirgrid.config.values import BM25_LANGUAGES
from beirgrid.core.errors import BeirgridError, DataError
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
    "double operators": ("wings && flow || !pipes", "wings flow pipes"),
    "a phrase": ('"supersonic aircraft"', "supersonic aircraft"),
    "an open quote": ('"supersonic aircraft', "supersonic aircraft"),
    "slop and boost": ('"laminar pipes"~5 flow^100', "laminar pipes 5 flow 100"),
    "an open parenthesis": ("((wings OR flow", "wings flow"),
    "a closing bracket": ("wings] flow}", "wings flow"),
    "a range": ("[wings TO pipes]", "wings pipes"),
    "a field": ("title: flow contents: wings id: pipes", "title flow contents wings id pipes"),
    "a field without a space": ("flow _exists_:title", "flow _exists_ title"),
    "wildcards": ("wing* fl?w", "wing fl w"),
    "match all": ("*:* flow", "flow"),
    "a fuzzy word": ("wongs~2 pipes", "wongs 2 pipes"),
    "a regular expression": ("/win.s/ flow", "win.s flow"),
    "backslashes": (r"flow\ wings \\ \u0066low \"", "flow wings u0066low"),
    "a trailing backslash": ("flow\\", "flow"),
    "JSON": ('{"query": {"match": "flow"}}', "query match flow"),
    "XML": ("<title>flow</title> &amp; <top>", "title flow title amp top"),
    "a shell command": ("$(flow) `wings` ${pipes} %flow %n %s", "flow wings pipes flow n s"),
    "a format string": ("%f flow {} {0}", "f flow 0"),
    "an option of Anserini": ("-hits 1 -bm25 flow @file", "hits 1 bm25 flow file"),
    "a tab": ("flow\twings", "flow wings"),
    "line ends": ("flow\nwings\r\npipes\r", "flow wings pipes"),
    "a line that looks like a topic": ("flow\n3\twings", "flow 3 wings"),
    "other line ends": (
        "flow\x0bwings\x0cpipes\x85drag\u2028rank\u2029retrieval",
        "flow wings pipes drag rank retrieval",
    ),
    "other spaces": ("flow\u00a0wings\u3000pipes\u2009drag", "flow wings pipes drag"),
    "separators of ASCII": ("flow\x1cwings\x1dpipes\x1edrag\x1frank", "flow wings pipes drag rank"),
    "control characters around": ("\x01\x02flow\x03\x7f", "flow"),
    "NUL": ("flow\x00wings", "flow wings"),
    "a byte order mark": ("\ufeffflow \ufeffwings", "flow wings"),
    "a zero-width space": ("flow\u200bwings", "flow wings"),
    "many identical words": ("flow " * 5000, "flow " * 5000),
    "identical words with marks": ("flow, " * 100, "flow " * 100),
    "numbers": ("1984 3.5 12", "12 1984 3.5"),
    "a URL": ("https://example.com/index.html?a=1&b=2#top", "https example.com index.html a 1 b 2 top"),
    "capitals": ("FLOW WINGS", "flow wings"),
    "possessive": ("the aircraft's wings", "aircraft wings"),
    "emoji beside words": ("flow 👩‍👩‍👧 🇩🇪 wings", "flow wings"),
    "astral letters": ("𝐟𝐥𝐨𝐰 flow", "flow"),
    "only punctuation": ('"(+-&|!){}[]^~*?:\\/', ""),
    "only stop words": ("to be or not to be", ""),
    "only control characters": ("\x01\x02\x03", ""),
    "only NUL": ("\x00", ""),
    "only white space": (" \t\u3000\u00a0\n", ""),
    "only format characters": ("\u200b\u200d\ufeff", ""),
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
    options = {"k1": 0.9, "b": 0.4, "depth": depth, "threads": 2, "memory_mb": 500}
    return lucene.search(index, queries, fields=fields, language=language, **options)


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


def test_an_index_that_is_missing_is_named_in_one_line(tmp_path):
    (tmp_path / "index").mkdir()
    with pytest.raises(BeirgridError, match=r"^searching .*/index: .*IndexNotFoundException: no segments[^\n]*$"):
        _search(tmp_path / "index", {"q": "flow"})


@pytest.mark.slow
def test_a_java_that_is_not_there_is_named(tmp_path, root):
    options = {"fields": "flat", "language": "en", "k1": 0.9, "b": 0.4, "depth": 10, "threads": 1, "memory_mb": 500}
    code = f"import pathlib, beirgrid.search.lucene as l; l.search(pathlib.Path(), {{'q': 'a'}}, **{options})"
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


def test_a_query_with_invisible_marks_finds_the_text_it_was_copied_from(tmp_path):
    texts = {
        "bidirectional": "\u202eflow\u202c \u200fwings\u200e",
        "soft-hyphen": "super\u00adsonic",
        "joiners": "می\u200cخواهم क्\u200dष",
        "combining": "Cafe\u0301 nai\u0308ve",
        "composed": "Caf\u00e9 na\u00efve",
        "variation-selectors": "❤\ufe0f ☎\ufe0e",
        "flags": "1\ufe0f\u20e3 🇩🇪 👩🏽‍🚀",
    }
    found = _search(_index(tmp_path, texts), {f"query {name}": text for name, text in texts.items()})
    assert {query: ids[0] for query, (ids, _) in found.items()} == {f"query {name}": name for name in texts}


def _long_queries() -> dict[str, str]:
    """Build texts with many more tokens than Lucene takes by itself; each begins with a word of a document."""
    choose = random.Random(7)
    ideographs = [chr(code) for code in range(0x4E00, 0x9FA5)]
    syllables = [chr(code) for code in range(0xAC00, 0xD7A3)]
    kana = [chr(code) for code in range(0x30A1, 0x30FA)]
    emoji = [chr(code) for code in range(0x1F300, 0x1F650)] + [chr(code) for code in range(0x1F900, 0x1FA00)]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return {
        "english": "flow " + " ".join(f"word{number}" for number in range(2000)),
        "chinese": "flow " + "".join(choose.sample(ideographs, 2000)),
        "japanese": "flow " + "".join(choose.choice(kana if n % 3 else ideographs) for n in range(4000)),
        "korean": "flow " + " ".join("".join(choose.sample(syllables, 3)) for _ in range(1200)),
        "emoji": "flow " + "".join(a + b for a in emoji[:4] for b in emoji),
        "one token": "flow " + "".join(choose.choice(letters) for _ in range(280_000)),
        "one letter": "flow " + "x" * 280_000,
    }


@pytest.mark.parametrize("fields", quick_first(["flat", "multifield"]))
def test_a_query_of_any_length_is_searched_whole(tmp_path, fields):
    """Lucene refuses more than 1,024 words and fields, unless it is told otherwise."""
    queries = {"words": f"{' '.join(f'word{number}' for number in range(5000))} flow", **_long_queries()}
    found = _search(_index(tmp_path, DOCUMENTS, fields), queries, fields)
    assert {name: ids for name, (ids, _) in found.items()} == {name: ["pipes", "wings"] for name in queries}
    assert found["words"] == found["english"]


def test_any_path_is_opened_in_the_c_locale(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "für mich, $(信息) 'x' \"y\" {z} a;b"
    folder.mkdir()
    assert _search(_index(folder, DOCUMENTS), {"q": "supersonic"})["q"][0] == ["wings"]


def test_long_queries_of_white_space_find_nothing(tmp_path):
    queries = {"blank": " \n" * 2000, "control": "\x00\x01" * 2000, "format": "\u200b" * 2000}
    assert _search(_index(tmp_path, DOCUMENTS), queries) == dict.fromkeys(queries, ([], []))


LANGUAGES = {
    "ar": "استرجاع المعلومات في المكتبات",
    "bn": "তথ্য পুনরুদ্ধার ব্যবস্থা",
    "da": "søgning i store biblioteker",
    "de": "Suche in großen Büchereien",
    "en": "searching large libraries",
    "es": "búsqueda en bibliotecas grandes",
    "fa": "بازیابی اطلاعات در کتابخانه‌ها",
    "fi": "haku suurissa kirjastoissa",
    "fr": "recherche dans les grandes bibliothèques",
    "hi": "पुस्तकालयों में सूचना की खोज",
    "hu": "keresés nagy könyvtárakban",
    "id": "pencarian di perpustakaan besar",
    "it": "ricerca nelle grandi biblioteche",
    "ja": "図書館での情報検索システム",
    "ko": "도서관의 정보 검색 시스템",
    "nl": "zoeken in grote bibliotheken",
    "no": "søk i store biblioteker",
    "pl": "wyszukiwanie w dużych bibliotekach",
    "pt": "busca em grandes bibliotecas",
    "ru": "поиск информации в больших библиотеках",
    "sv": "sökning i stora bibliotek",
    "sw": "utafutaji katika maktaba kubwa",
    "te": "గ్రంథాలయాల్లో సమాచార శోధన",
    "tr": "büyük kütüphanelerde arama",
    "uk": "пошук інформації у великих бібліотеках",
    "zh": "图书馆的信息检索系统",
}


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
    text = LANGUAGES[language]
    index = _index(tmp_path, {"d": text, "other": "zzz"}, language=language)
    many = " ".join(f"word{number}" for number in range(1500))
    found = _search(index, {"short": text, "long": f"{text} {many}", "none": "qqq"}, language=language)
    assert {query: ids for query, (ids, _) in found.items()} == {"short": ["d"], "long": ["d"], "none": []}
