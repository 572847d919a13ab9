"""Collections through ir_datasets: its own download code against a server on the loopback interface."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import random
import re
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ir_datasets
import loopback
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import beirgrid, fetch_corpus, fetch_dataset, main, quick_first
from ir_datasets.datasets import beir
from ir_datasets.datasets.base import Dataset, FilteredQueries
from ir_datasets.formats import GenericDoc, GenericQuery
from ir_datasets.util import Cache, ZipExtract, home_path
from ir_datasets.util.download import _DownloadConfig

from beirgrid.collections import collection
from beirgrid.collections.downloads import one_at_a_time
from beirgrid.collections.qrels import read as read_qrels
from beirgrid.core import files

HEADER = "query-id\tcorpus-id\tscore\n"
META = {
    **{"url": "u", "pubmed_id": "p", "stance": "PRO", "tags": ["a"], "authors": [], "year": 1999, "cited_by": []},
    **{"references": [], "query": "keywords", "narrative": "long", "description": "longer"},
}
DOCUMENTS = [
    {"_id": "d3", "title": "Third", "text": "third text, 👍", "metadata": META},
    {"_id": "d1", "title": "", "text": "naïve", "metadata": META},
    {"_id": "31715818", "title": "Title only", "text": "", "metadata": META},
]
QUERIES = [
    {"_id": "2", "text": "second query", "metadata": META},
    {"_id": "1", "text": "première query", "metadata": META},
    {"_id": "unjudged", "text": "nobody judged this", "metadata": META},
]
QRELS = HEADER + "1\td1\t1\n2\td3\t2\n2\t31715818\t0\n1\tgone\t-1\n"
FOLDER = "tiny"  # within the zip, as BEIR has it


def jsonl(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def zipped(corpus: str = jsonl(DOCUMENTS), qrels: str = QRELS, filler: int = 0) -> bytes:
    """Return a zip in BEIR layout, with ``filler`` bytes that do not compress; equal arguments give equal bytes."""
    members = {"filler": random.Random(0).randbytes(filler), "corpus.jsonl": corpus, "queries.jsonl": jsonl(QUERIES)}
    members |= {"qrels/dev.tsv": HEADER + "1\td3\t1\n", "qrels/test.tsv": qrels}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            # A ZipInfo without a date has a fixed one; a bare name would take the time of day.
            archive.writestr(zipfile.ZipInfo(f"{FOLDER}/{name}"), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


@dataclass
class Server:
    """The answers of the server, and its requests."""

    url: str = ""
    body: bytes = b""
    status: int = 200
    break_after: int | None = None
    asked: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)  # answers wait for it

    def serve(self, body: bytes, /, **settings: Any) -> str:
        """Serve ``body`` from now on; return its MD5."""
        self.body, self.status, self.break_after, self.asked = body, 200, None, []
        self.go.set()
        for name, value in settings.items():
            setattr(self, name, value)
        return hashlib.md5(self.body).hexdigest()


@pytest.fixture
def server():
    """An HTTP server on the loopback interface."""
    state = Server()

    class Handler(loopback.Handler):
        def do_GET(self) -> None:
            state.asked.append(self.headers.get("Range", "whole"))
            state.go.wait(60)
            sent = state.body[: state.break_after]  # then the connection is closed: this is HTTP 1.0
            self.answer(sent, state.status, Content_Length=str(len(state.body)))

    with loopback.serving(Handler) as url:
        state.url = f"{url}/{FOLDER}.zip"
        yield state


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The folder of ir_datasets."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IR_DATASETS_TMP", str(tmp_path / "irds-tmp"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "home"


def register_dataset(
    name: str,
    url: str,
    md5: str,
    document: Any = beir.BeirTitleDoc,
    query: Any = GenericQuery,
    splits: bool = False,
    size_hint: int = 6_000_000,
) -> str:
    """Register a dataset built as ir_datasets/datasets/beir.py builds its own; return its id."""
    base = home_path() / beir.NAME
    entry = {"url": url, "size_hint": size_hint, "expected_md5": md5, "cache_path": "tiny/source.zip"}
    download = _DownloadConfig(contents={beir.NAME: {"tiny": entry}}).context(beir.NAME, base)["tiny"]
    documents = beir.BeirDocs("tiny", ZipExtract(download, f"{FOLDER}/corpus.jsonl"), document)
    texts = Cache(ZipExtract(download, f"{FOLDER}/queries.jsonl"), base / "tiny/queries.json")
    queries = beir.BeirQueries("tiny", texts, query)

    def qrels(split: str) -> beir.BeirQrels:
        extract = ZipExtract(download, f"{FOLDER}/qrels/{split}.tsv")
        return beir.BeirQrels(Cache(extract, base / f"tiny/{split}.qrels"), qrels_defs={})

    identifier, register = f"beir/{name}", ir_datasets.registry.register
    if splits:
        register(identifier, Dataset(documents, queries))
        for split in ("dev", "test"):
            judged = FilteredQueries(queries, beir.qid_filter(qrels(split)), mode="include")
            register(f"{identifier}/{split}", Dataset(documents, judged, qrels(split)))
    else:
        register(identifier, Dataset(documents, queries, qrels("test")))
    return identifier


_NUMBERS = itertools.count()


@pytest.fixture
def register(server, home) -> Callable[..., str]:
    """Return a function that registers a dataset of the server under a new name."""
    return lambda md5, *kinds, **options: register_dataset(
        f"beirgrid-test-{next(_NUMBERS)}", server.url, md5, *kinds, **options
    )


@pytest.fixture
def out(tmp_path) -> Path:
    """The folder of artifacts, not made yet."""
    return tmp_path / "out"


@pytest.fixture
def fetch(out, capsys):
    """Fetch the corpus, or the dataset, of an id; return the status and standard error."""

    def call(kind: str, corpus: str, dataset: str | None = None, **entry: Any) -> tuple[int, str]:
        capsys.readouterr()
        source = {"source": "ir_datasets", "id": corpus}
        if kind == "corpus":
            status = main(fetch_corpus(source | entry, out))
        else:
            status = main(fetch_dataset(source, out, id=dataset or corpus, **entry))
        return status, capsys.readouterr().err

    return call


def the_error(done: tuple[int, str]) -> str:
    """Return the one error message; the log of ir_datasets may stand before it."""
    status, stderr = done
    assert status == 1, stderr
    assert "Traceback" not in stderr
    lines = stderr.replace("\x1b[A", "\n").splitlines()  # a progress bar may end in "one line up"
    errors = [line for line in lines if "error: " in line and not line.startswith("[")]
    assert len(errors) == 1, stderr
    assert errors[0] == lines[-1]
    return errors[0].partition(": error: ")[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def downloads(home: Path) -> list[str]:
    """Return what ir_datasets kept, besides its empty or not yet filled index of documents and locks."""
    kept = [path for path in home.rglob("*") if path.is_file() and path.parent.name != "docs.pklz4"]
    return sorted(str(path.relative_to(home)) for path in kept if path.name != "beir.lock")


def documents_in(folder: Path) -> list[dict[str, str]]:
    return pq.read_table(folder / "corpus.parquet").to_pylist()


def served(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, str]]:
    return [{key: row[key] for key in ("_id", *keys)} for row in rows]


def assert_whole(fetch, out: Path, identifier: str) -> None:
    """Assert that corpus and dataset can be fetched, and are what the server has."""
    assert fetch("corpus", identifier, documents=3)[0] == 0
    assert fetch("dataset", identifier, queries=2)[0] == 0
    assert documents_in(out) == served(DOCUMENTS, "title", "text")
    assert pq.read_table(out / "queries.parquet").to_pylist() == served(QUERIES[:2], "text")
    assert read_qrels(out / "qrels.tsv") == {"2": {"d3": 2, "31715818": 0}, "1": {"d1": 1, "gone": -1}}


# ---- the right file


@pytest.mark.parametrize(
    ("document", "query"),
    [
        pytest.param(beir.BeirTitleDoc, GenericQuery, id="scifact"),
        pytest.param(beir.BeirTitleUrlDoc, beir.BeirUrlQuery, id="nfcorpus"),
        pytest.param(beir.BeirCordDoc, beir.BeirCovidQuery, id="trec-covid"),
        pytest.param(beir.BeirToucheDoc, beir.BeirToucheQuery, id="touche"),
        pytest.param(beir.BeirSciDoc, beir.BeirSciQuery, id="scidocs"),
        pytest.param(beir.BeirCqaDoc, beir.BeirCqaQuery, id="cqadupstack"),
    ],
)
def test_what_is_served_is_what_is_fetched(server, register, fetch, out, home, document, query):
    assert_whole(fetch, out, register(server.serve(zipped()), document, query))
    assert server.asked == ["whole"]
    assert files.read_json(out / "corpus.json")["facts"]["documents"] == 3
    counts = {"queries": 2, "judgements": 4, "unknown_documents": 1}
    assert files.read_json(out / "dataset.json")["facts"].items() >= counts.items()
    assert "beir/tiny/source.zip" in downloads(home)


def test_a_collection_without_titles(server, register, fetch, out):
    identifier = register(server.serve(zipped()), GenericDoc)
    assert fetch("corpus", identifier)[0] == 0
    assert documents_in(out) == [{**row, "title": ""} for row in served(DOCUMENTS, "text")]


def test_the_splits_of_a_collection_share_one_download(server, register, fetch, out):
    identifier = register(server.serve(zipped()), splits=True)
    assert fetch("corpus", identifier, documents=3)[0] == 0
    found = {}
    for split in ("dev", "test"):
        assert fetch("dataset", identifier, f"{identifier}/{split}")[0] == 0
        found[split] = list(collection.read_queries(out / "queries.parquet"))
    assert found == {"dev": ["1"], "test": ["2", "1"]}
    assert server.asked == ["whole"]


# ---- the wrong file, then the right one


@pytest.mark.parametrize("kind", ["corpus", "dataset"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"body": zipped(corpus=jsonl(DOCUMENTS[:2]))}, "Expected md5 hash to be {md5} but got", id="md5"),
        pytest.param({"break_after": 50_000}, "(ChunkedEncodingError|ProtocolError): .*IncompleteRead", id="truncated"),
        pytest.param({"status": 404, "body": b"not here"}, "Expected md5 hash to be {md5}|404", id="404"),
    ],
)
def test_a_bad_download_is_refused_and_the_next_one_is_used(server, register, fetch, out, home, kind, wrong, message):
    right = zipped(filler=100_000)
    md5 = server.serve(right)
    identifier = register(md5)
    server.serve(right, **wrong)
    error = the_error(fetch(kind, identifier))
    assert error.startswith(f"{identifier} cannot be read (")
    assert re.search(message.format(md5=md5), error), error
    assert str(home) in error
    assert names(out) == downloads(home) == []

    server.serve(right)
    assert_whole(fetch, out, identifier)


def test_a_server_that_is_gone_is_named(server, register, fetch, out, home):
    md5 = server.serve(zipped())
    server.url = "http://127.0.0.1:9/tiny.zip"
    error = the_error(fetch("corpus", register(md5)))
    assert "127.0.0.1" in error
    assert names(out) == downloads(home) == []


# ---- several jobs at once

FETCH = """
import logging, sys
from pathlib import Path
from beirgrid.config.datasets import IrDatasetsCorpus
from beirgrid.stages.fetch.work import fetch_corpus
from test_ir_datasets import register_dataset

logging.basicConfig(level=logging.INFO)
url, md5, out = sys.argv[1:]
source = IrDatasetsCorpus(source="ir_datasets", id=register_dataset("shared", url, md5), documents=3)
fetch_corpus(name="x", entry=source, output=Path(out))
"""


@pytest.mark.slow
def test_two_jobs_share_one_download(server, home, tmp_path):
    md5 = server.serve(zipped())
    server.go.clear()

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", FETCH, server.url, md5, str(tmp_path / name / "corpus.parquet")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    one = start("one")
    deadline = time.monotonic() + 60
    while not server.asked and time.monotonic() < deadline:
        time.sleep(0.02)
    two = start("two")
    assert two.stderr is not None
    assert any("waiting for another job that fetches beir" in line for line in two.stderr)
    server.go.set()
    errors = [job.communicate(timeout=60)[1] for job in (one, two)]
    assert [one.returncode, two.returncode] == [0, 0], errors
    assert server.asked == ["whole"]
    for name in ("one", "two"):
        assert documents_in(tmp_path / name) == served(DOCUMENTS, "title", "text")


def test_whoever_may_write_to_a_shared_home_may_lock_in_it(home, monkeypatch):
    home.mkdir()
    with one_at_a_time("beir/x"):
        pass
    (lock,) = home.iterdir()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o666


# ---- archives that are flawed although their checksum is right


def damaged(archive: bytes, member: str) -> bytes:
    """Return the archive with one bit of the packed data of a member inverted."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        info = opened.getinfo(member)
    at = info.header_offset + 30 + len(member) + info.compress_size // 2
    return archive[:at] + bytes([archive[at] ^ 0x10]) + archive[at + 1 :]


MANY = jsonl([{**DOCUMENTS[0], "_id": f"d{i}"} for i in range(2000)])


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        pytest.param("corpus", b"<html>moved</html>", "BadZipFile: File is not a zip file", id="no-zip"),
        pytest.param("dataset", damaged(zipped(), "tiny/qrels/test.tsv"), "BadZipFile|error", id="damaged-qrels"),
        pytest.param("dataset", zipped(qrels=HEADER + "1\td1\tx\n"), "ValueError: .*'x'", id="score-is-a-word"),
    ],
)
def test_a_flawed_archive_is_refused(server, register, fetch, out, kind, body, message):
    identifier = register(server.serve(body))
    error = the_error(fetch(kind, identifier))
    assert identifier in error
    assert re.search(message, error), error
    assert names(out) == []


def test_the_message_about_a_flawed_archive_says_where_to_delete_it(server, register, fetch, out, home):
    """Deleting what the message names, and running again, is enough."""
    identifier = register(server.serve(damaged(zipped(MANY), "tiny/corpus.jsonl")))
    assert f"delete it first under {home}" in the_error(fetch("corpus", identifier))
    assert fetch("corpus", identifier)[0] == 1
    (home / "beir" / "tiny" / "source.zip").unlink()
    assert_whole(fetch, out, register(server.serve(zipped())))


# ---- other troubles


@pytest.mark.parametrize("kind", ["corpus", "dataset"])
@pytest.mark.parametrize("identifier", ["beir/scifacts", "no-such-thing", ""])
def test_an_unknown_id_is_named(home, fetch, out, kind, identifier):
    error = the_error(fetch(kind, identifier))
    assert error.startswith(f"ir_datasets has no dataset {identifier!r}")
    assert names(out) == []


def test_an_id_without_queries_is_refused(server, register, fetch, out):
    identifier = register(server.serve(zipped()), splits=True)
    assert fetch("corpus", identifier)[0] == 0
    assert identifier in the_error(fetch("dataset", identifier))
    assert names(out) == ["corpus.json", "corpus.parquet"]


@pytest.mark.parametrize("clash", quick_first([False, True]))
def test_what_brights_qrels_exclude_is_not_judged(tmp_path, monkeypatch, clash):
    """ir_datasets has it as a grade of -100."""
    ids = [f"leetcode/{i}" for i in range(3)]
    relevant = [("7", ids[0], ids if clash else ids[1:]), ("8", ids[2], ["N/A"])]
    facts = {"query": "how", "reasoning": "", "gold_answer": ""}
    rows = [{"id": name, **facts, "gold_ids": [gold], "excluded_ids": others} for name, gold, others in relevant]
    reasons = ("Gemini-1.0", "claude-3-opus", "gpt4", "grit", "llama3-70b")
    tables = dict.fromkeys(("queries", *(f"{of}_reason.queries" for of in reasons)), rows)
    tables["docs"] = [{"id": name, "content": "text"} for name in ids]
    (tmp_path / "home/bright").mkdir(parents=True)
    for name, of_table in tables.items():
        pq.write_table(pa.Table.from_pylist(of_table), tmp_path / f"home/bright/leetcode.{name}.parquet")
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    source = {"source": "ir_datasets", "id": "bright/leetcode", "documents": 3}
    for words in (
        fetch_corpus(source, tmp_path),
        fetch_dataset(source, tmp_path, id="bright/leetcode", queries=2),
    ):
        done = beirgrid(*words)
        assert done.returncode == 0 or (clash and words[1] == "dataset"), done.stderr
    if clash:
        error = the_error((done.returncode, done.stderr))
        assert error == "dataset 'tiny': query '7' excludes the relevant document 'leetcode/0'"
        return
    assert read_qrels(tmp_path / "qrels.tsv") == {"7": {"leetcode/0": 1}, "8": {"leetcode/2": 1}}
    assert collection.read_restrictions(tmp_path / "queries.parquet")[0] == {"7": {"leetcode/1", "leetcode/2"}}


@pytest.mark.parametrize(
    ("filler", "size_hint"),
    [
        pytest.param(0, 6_000_000, id="foreseen"),  # from size_hint, which all of beir's collections have
        pytest.param(3_000_000, 1000, id="under-the-download"),
        pytest.param(0, 1000, id="under-the-documents"),
    ],
)
def test_a_disk_that_fills_up(server, register, fetch, out, full_disk, monkeypatch, filler, size_hint):
    monkeypatch.setenv("IR_DATASETS_HOME", str(full_disk))
    rng = random.Random(0)
    rows = [{"_id": f"x{i}", "title": "", "text": rng.randbytes(100).hex()} for i in range(0 if filler else 6000)]
    rows = [*DOCUMENTS, *rows]
    identifier = register(server.serve(zipped(corpus=jsonl(rows), filler=filler)), size_hint=size_hint)
    error = the_error(fetch("corpus", identifier))
    assert names(out) == []
    assert not [name for name in downloads(full_disk) if name.endswith(".tmp")]

    subprocess.run(["mount", "-o", "remount,size=20m", full_disk], check=True)
    done = fetch("corpus", identifier, documents=len(rows))
    assert done[0] == 0, done[1]
    assert documents_in(out) == served(rows, "title", "text")
    assert re.search("disk is full|disk space", error)
