"""The stage fetch on folders: refusals with their messages and without partial files, and accepted input."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import beirgrid, fetch_corpus, fetch_dataset, main
from model_hub import serve

from beirgrid.collections import collection, training_data
from beirgrid.collections.qrels import read as read_qrels
from beirgrid.core import files
from beirgrid.core.errors import DataError
from beirgrid.core.progress import PREFIX
from beirgrid.runs import runs

DOCUMENTS = [
    {"_id": "d3", "title": "Third", "text": "third text"},
    {"_id": "d1", "title": "Ärste", "text": "first text, naïve"},
    {"_id": "d2", "title": "", "text": "second text"},
]
QUERIES = [
    {"_id": "q2", "text": "second query"},
    {"_id": "q1", "text": "première query"},
    {"_id": "unjudged", "text": "nobody judged this"},
]
HEADER = "query-id\tcorpus-id\tscore\n"
QRELS = HEADER + "q1\td1\t1\nq2\td3\t2\nq2\td1\t0\n"

# What stands in place of a file: its text, bytes or rows, nothing, or what makes it.
Content = str | bytes | list[Any] | Callable[[Path], object] | None


def jsonl(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


GOOD = {"corpus.jsonl": jsonl(DOCUMENTS), "queries.jsonl": jsonl(QUERIES), "qrels/test.tsv": QRELS}


def write(folder: Path, contents: Mapping[str, Content]) -> Path:
    """Write files into a folder, and return it."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(folder / name)
        elif content is not None:
            text = jsonl(content) if isinstance(content, list) else content
            (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def lay(folder: Path, changes: Mapping[str, Content] | None = None) -> Path:
    """Write the good collection with some files replaced or left out (None)."""
    return write(folder, {**GOOD, **(changes or {})})


def gz(content: str | list[Any]) -> bytes:
    return gzip.compress((jsonl(content) if isinstance(content, list) else content).encode())


# Long enough, and random enough, that 9,000 bytes of its gzip form hold whole lines.
MANY = [{"_id": f"d{i}", "text": random.Random(i).randbytes(40).hex()} for i in range(500)]


@dataclass
class Fetched:
    """The output of one run of the stage."""

    status: int
    stderr: str

    @property
    def error(self) -> str:
        """The one error message; but for progress, there is no other line on standard error."""
        assert self.status == 1
        assert "Traceback" not in self.stderr
        lines = [line for line in self.stderr.splitlines() if not line.startswith(PREFIX) and "%|" not in line]
        assert len(lines) == 1, self.stderr
        assert re.match(r"beirgrid stage fetch_\w+: error: ", lines[0])
        return lines[0].partition(": error: ")[2]

    @property
    def warnings(self) -> list[str]:
        assert self.status == 0, self.stderr
        return [line.removeprefix("warning: ") for line in self.stderr.splitlines() if line.startswith("warning: ")]


@pytest.fixture
def run(capsys):
    """Run a command in this process."""

    def call(words: list[str]) -> Fetched:
        capsys.readouterr()
        status = main(words)
        return Fetched(status, capsys.readouterr().err)

    return call


@pytest.fixture
def out(tmp_path) -> Path:
    """The folder of artifacts, not made yet."""
    return tmp_path / "out"


@pytest.fixture
def fetch(run, tmp_path, out):
    """Fetch the good collection with changes, and entries of corpus and dataset; return the warnings."""

    def call(changes: dict[str, Content], corpus: dict[str, Any] | None = None, **dataset: Any) -> list[str]:
        folder = lay(tmp_path / "folder", changes)
        warnings = run(corpus_command(folder, out, **(corpus or {}))).warnings
        return warnings + run(dataset_command(folder, out, corpus, **dataset)).warnings

    return call


def corpus_command(folder: Path, out: Path, **entry: Any) -> list[str]:
    return fetch_corpus({"source": "local", "path": str(folder), **entry}, out)


def dataset_command(folder: Path, out: Path, corpus: dict[str, Any] | None = None, **entry: Any) -> list[str]:
    return fetch_dataset({"source": "local", "path": str(folder), **(corpus or {})}, out, **entry)


def model_command(out: Path, **entry: Any) -> list[str]:
    written = ["--output", str(out / "checkpoint"), "--record", str(out / "model.json")]
    return ["fetch", "model", "--name", "toy", "--entry", json.dumps(entry), *written]


def rows(out: Path, name: str = "corpus") -> list[dict[str, str]]:
    return pq.read_table(out / f"{name}.parquet").to_pylist()


def facts(out: Path, name: str = "dataset") -> dict[str, Any]:
    return files.read_json(out / f"{name}.json")["facts"]


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and time of every file under a folder, hidden ones too."""
    found = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def names(folder: Path) -> list[str]:
    """Return the names of everything directly in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def assert_refused(run, command: list[str], out: Path, message: str) -> None:
    """Assert that a command over a finished output fails with the message, and changes no file."""
    before = contents(out)
    assert before
    error = run(command).error
    assert re.search(message, error), error
    assert contents(out) == before


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """The good collection, fetched from the folder beside."""
    folder = lay(tmp_path_factory.mktemp("good") / "folder")
    out = folder.with_name("out")
    assert main(corpus_command(folder, out)) == main(dataset_command(folder, out)) == 0
    return out


@dataclass
class Bad:
    """A flawed input: files that differ from the good collection, the message to expect, and keys of the entry."""

    files: dict[str, Content]
    message: str
    entry: dict[str, Any] = field(default_factory=dict)


def table(*cases: Bad) -> Any:
    return pytest.mark.parametrize("bad", cases, ids=[case.message[:40] for case in cases])


def documents(*rows: str) -> dict[str, Content]:
    """Return a good document and then the given lines, from line 2 on."""
    return {"corpus.jsonl": jsonl(DOCUMENTS[:1]) + "".join(row + "\n" for row in rows)}


def _memory(path: Path) -> None:
    """Make a link to a file that the disk cannot read."""
    path.symlink_to("/proc/self/mem")


# ---- corpora that are refused


@table(
    Bad({"corpus.jsonl": None, "corpus.jsonl.gz": gz(MANY)[:9000]}, r"/folder/corpus.jsonl\.gz: truncated.*line \d"),
    Bad({"corpus.jsonl": None, "corpus.jsonl.gz": gz(MANY)[:-8] + bytes(8)}, r"/folder/corpus.jsonl\.gz: .*corrupt"),
    Bad(documents('{"_id": "d1", "text": }'), "/folder/corpus.jsonl:2: not JSON"),
    Bad(documents('{"_id": %s, "text": "x"}' % ("1" * 5000)), "/folder/corpus.jsonl:2: "),
    Bad(documents('["d1", "text"]'), "/folder/corpus.jsonl:2: expected a JSON object, got list"),
    Bad(documents('{"id": "d1", "text": "x"}'), "/folder/corpus.jsonl:2: no _id"),
    Bad(documents('{"_id": "", "text": "x"}'), "/folder/corpus.jsonl:2: no _id"),
    Bad(documents('{"_id": ["d1"], "text": "x"}'), "/folder/corpus.jsonl:2: .*_id.* list"),
    Bad(
        documents('{"_id": "d1", "title": "x", "contents": "y"}'),
        r"/folder/corpus.jsonl:2: no 'text' \(it has _id, title, contents\)",
    ),
    Bad(documents('{"_id": "d1", "text": 7}'), "/folder/corpus.jsonl:2: 'text' .* got int"),
    Bad(
        {"corpus.jsonl": [*DOCUMENTS, DOCUMENTS[1]]},
        r"'d1': .*/folder/corpus.jsonl:2 and .*/folder/corpus.jsonl:4\. "
        r".*add allow: \[duplicate-documents\] to corpora\.tiny",
    ),
    Bad(
        {"corpus.jsonl": [{"_id": 7, "text": "a"}, {"_id": "7", "text": "b"}]},
        r"'7': .*/folder/corpus.jsonl:1 and .*/folder/corpus.jsonl:2",
    ),
    Bad(documents('{"_id": "d 1", "text": "x"}'), "/folder/corpus.jsonl:2: .*'d 1' has white space"),
    Bad(documents('{"_id": "d\u00a01"}'), "/folder/corpus.jsonl:2: .*has white space"),
    Bad({"corpus.jsonl": ""}, "'tiny' is empty: .*/folder has no documents"),
    Bad({"corpus.jsonl": jsonl(DOCUMENTS).encode("latin-1")}, r"/folder/corpus.jsonl:2: not UTF-8 \(byte 0xc4\)"),
    Bad({}, "'tiny' has 3 documents; the registry says 5,183", {"documents": 5183}),
    Bad({"corpus.jsonl.gz": gz(DOCUMENTS)}, r"/folder has both corpus\.jsonl and corpus\.jsonl\.gz: keep"),
    Bad({"corpus.jsonl": jsonl(DOCUMENTS).replace("\n", "\r")}, "/folder/corpus.jsonl:1: a carriage return within"),
    Bad(documents('{"_id": "d1", "_id": "d2"}'), "/folder/corpus.jsonl:2: .*the key '_id' occurs twice"),
    Bad({"corpus.jsonl": None}, r"/folder has no corpus\.jsonl \(or corpus\.jsonl\.gz\)"),
    Bad({"corpus.jsonl": Path.mkdir}, r"/folder has no corpus\.jsonl \(or"),
    Bad({"corpus.jsonl": _memory}, r"Input/output error \(.*/folder/corpus.jsonl\)"),
    Bad({"corpus.jsonl": jsonl(DOCUMENTS).encode("utf-16-le")}, "/folder/corpus.jsonl:1: not JSON"),
    Bad(documents('{"_id": true, "text": "x"}'), "/folder/corpus.jsonl:2: '_id' .* got bool"),
    Bad({}, r"^/nowhere has no corpus\.jsonl", {"path": "/nowhere"}),
)
def test_a_bad_corpus_is_refused(run, tmp_path, good, out, bad):
    shutil.copytree(good, out)
    assert_refused(run, corpus_command(lay(tmp_path / "folder", bad.files), out, **bad.entry), out, bad.message)


# ---- datasets that are refused


def judged(text: str) -> dict[str, Content]:
    """Return other qrels."""
    return {"qrels/test.tsv": text}


def query(*rows: str) -> dict[str, Content]:
    """Return the good queries and then the given lines, from line 4 on."""
    return {"queries.jsonl": jsonl(QUERIES) + "".join(row + "\n" for row in rows)}


def qrels(rows: str) -> dict[str, Content]:
    """Return the good qrels and then the given lines, from line 5 on."""
    return {"qrels/test.tsv": QRELS + rows}


@table(
    Bad({"queries.jsonl": None, "queries.jsonl.gz": gz(MANY)[:9000]}, r"/folder/queries.jsonl\.gz: truncated"),
    Bad(query('{"_id": "q3" "text": "x"}'), "/folder/queries.jsonl:4: not JSON"),
    Bad(query('{"_id": "q3"}'), "/folder/queries.jsonl:4: 'text' should be text"),
    Bad({**query(r'{"_id": "q3", "text": "\udc00"}'), **qrels("q3\td1\t1\n")}, "/folder/queries.jsonl:4: "),
    Bad(
        query('{"_id": "q2", "text": "again"}'),
        r"'q2': .*/folder/queries.jsonl:1 and .*/folder/queries.jsonl:4\. "
        r".*add allow: \[duplicate-queries\] to corpora\.tiny",
    ),
    Bad(
        {**query('{"_id": "q3", "text": ""}'), **qrels("q3\td1\t1\n")},
        r"/folder/queries.jsonl:4: query 'q3' is empty\. .*add allow: \[empty-queries\] to corpora\.tiny",
    ),
    Bad({"queries.jsonl": jsonl(QUERIES).encode("latin-1")}, r"/folder/queries.jsonl:2: not UTF-8 \(byte 0xe8\)"),
    Bad(qrels("q9\td1\t1\nq8\td1\t1\n"), "qrels judge 2 unknown queries, 'q9' first"),
    Bad(qrels("q1\td2\thigh\n"), "/folder/qrels/test.tsv:5: the score 'high' is not a whole number"),
    Bad(qrels("q1\td2\t0.5\n"), "/folder/qrels/test.tsv:5: the score '0.5' is not a whole number"),
    Bad(judged("q1\td1\t1.5\nq2\td1\t1\n"), "/folder/qrels/test.tsv:1: "),
    Bad(judged("q1 d1 1\n"), "/folder/qrels/test.tsv:1: expected the columns query-id"),
    Bad(judged("q1\td1\t1\nq2 0 d1 1\n"), "/folder/qrels/test.tsv:2: expected the columns query-id"),
    Bad(judged("q1 0 d1 1\nq2\td1\t1\n"), "/folder/qrels/test.tsv:2: .* query-id, iteration, corpus-id, score; got"),
    Bad(
        judged("frage\tcorpus_id\tscore\nq1\td1\t1\n"),
        r"/folder/qrels/test.tsv:1: the header 'frage\\tcorpus_id\\tscore' does not name each of query-id, corpus-id",
    ),
    Bad(
        judged("query-id\tcorpus-id\tscore\tscore\nq1\td1\t1\t1\n"),
        "/folder/qrels/test.tsv:1: the header .* does not name each of",
    ),
    Bad(qrels(f"q1\td2\t{'9' * 5000}\n"), r"/folder/qrels/test.tsv:5: the score '9+\.\.\.9+' is not"),
    Bad(qrels("q1\td2\t-101\n"), r"/folder/qrels/test.tsv:5: -101 is not a relevance grade \(at most 100\)"),
    Bad(
        judged(HEADER + "q1\tgone\t1\nq2\tlost\t1\n"),
        r"'tiny': the corpus 'tiny' has none of the 2 documents that the qrels judge \('gone', say\)",
    ),
    Bad({"qrels/test.tsv.gz": gz(QRELS)}, r"has both qrels/test\.tsv and qrels/test\.tsv\.gz"),
    Bad(query('{"_id": "q3", "text": "x", "text": "y"}'), "/folder/queries.jsonl:4: .* key 'text' occurs twice"),
    Bad(qrels("q 1\td1\t1\n"), "/folder/qrels/test.tsv:5: the id 'q 1' has white space"),
    Bad(qrels("q1\td 1\t1\n"), "/folder/qrels/test.tsv:5: the id 'd 1' has white space"),
    Bad(judged(QRELS.replace("\nq2", "\rq2")), "/folder/qrels/test.tsv:2: a carriage return"),
    Bad(judged("d1\tq1\t1\nd3\tq2\t2\n"), "the qrels judge 2 unknown queries"),
    Bad(qrels("\ufeffq1\td2\t1\n"), "/folder/qrels/test.tsv:5: the id .* begins with a byte order mark"),
    Bad(judged("q1\td1\t0\nq2\td3\t-1\n"), "of its 2 judgements, none is relevant"),
    Bad(judged("q1 1 d1 0\n"), "'tiny': of its 1 judgement, none is relevant"),
    Bad(judged('"q1"\t"d1"\t1\n'), r"""1 unknown query, '"q1"' first"""),
    Bad(judged("query-id,corpus-id,score\nq1,d1,1\n"), "/folder/qrels/test.tsv:1: expected the"),
    Bad({}, r"/folder has no qrels/dev\.tsv", {"split": "dev"}),
    Bad(judged(HEADER), r"'tiny': it has no qrels \(split 'test' is empty\)"),
    Bad(judged(""), r"'tiny': it has no qrels \(split 'test' is empty\)"),
    Bad({"queries.jsonl": None}, r"/folder has no queries\.jsonl \(or queries\.jsonl\.gz\)"),
    Bad({}, "'tiny': it has 2 queries with qrels; the registry says 300", {"queries": 300}),
)
def test_a_bad_dataset_is_refused(run, tmp_path, good, out, bad):
    shutil.copytree(good, out)
    assert_refused(run, dataset_command(lay(tmp_path / "folder", bad.files), out, **bad.entry), out, bad.message)


# ---- checkpoints that are refused

WEIGHTS = b"safetensors, more or less"
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
CHECKPOINT = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}
PICKLES = dict.fromkeys(
    (
        *("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "optimizer.pkl", "tf_model.h5"),
        *("flax_model.msgpack", "rust_model.ot", "onnx/model.onnx", "modeling_toy.py", "1_Dense/pytorch_model.bin"),
    ),
    b"code",
)


def without(*left_out: str) -> dict[str, bytes]:
    return {name: data for name, data in CHECKPOINT.items() if name not in left_out}


def _index(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"weight{number}": shard for number, shard in enumerate(shards)}}).encode()


SAFETENSORS_INDEX = "model.safetensors.index.json"
OUTSIDE = [
    (SAFETENSORS_INDEX, _index("model.safetensors", "../x.safetensors"), "'../x.safetensors', which is"),
    (SAFETENSORS_INDEX, _index("/tmp/x.safetensors"), "'/tmp/x.safetensors', which is outside"),
    ("pytorch_model.bin.index.json", _index("a/../../x.bin"), "'a/../../x.bin', which is outside"),
    (f"1_Dense/{SAFETENSORS_INDEX}", _index("../../x.safetensors"), "'../../x.safetensors', which is"),
    ("modules.json", b'[{"path": "../other", "type": "x"}]', "'../other', which is outside of the checkpoint"),
    (SAFETENSORS_INDEX, b"[]", "is damaged (top level: Input should be an object"),
    ("adapter_config.json", b'{"base_model_name_or_path": "/tmp"}', "makes the checkpoint an adapter of another one"),
]


@pytest.mark.parametrize(
    ("inside", "entry", "message"),
    [
        ({}, {}, "'toy': there is no folder .*/folder$"),
        (without("config.json"), {}, "'toy': .*neither config.json nor modules.json"),
        (without("model.safetensors"), {}, r"'toy': no \.safetensors weights"),
        (without("tokenizer.json"), {}, "'toy': the checkpoint has no tokenizer"),
        (
            {**without("model.safetensors"), **PICKLES},
            {},
            r"'toy': no \.safetensors weights.*set models\.toy\.pickled to true: fetch then converts them",
        ),
        (
            {**CHECKPOINT, "model.safetensors": b"other weights"},
            {"files": {"model.safetensors": SHA256}},
            f"'toy': model.safetensors has SHA-256 (?!{SHA256})[0-9a-f]{{64}}, the registry says {SHA256}",
        ),
        (
            CHECKPOINT,
            {"files": {"1_Pooling/config.json": SHA256}},
            "'toy': the checkpoint has no 1_Pooling/config.json",
        ),
        ({**CHECKPOINT, "x.json": lambda path: path.symlink_to("gone")}, {}, r"No such file.*/x\.json"),
        *(
            ({**CHECKPOINT, name: content}, {}, f"model 'toy': {re.escape(name)} .*{re.escape(message)}")
            for name, content, message in OUTSIDE
        ),
        ({}, {"path": None, "package": "no_such_package_here"}, "'no_such_package_here' is not installed"),
        ({}, {"path": None, "package": "jsonschema"}, "'jsonschema' .*has no checkpoint"),
        (
            {},
            {"path": None, "checkpoint": "nobody/nothing", "revision": "0" * 40},
            r"nobody/nothing at revision 0{40} cannot be fetched .*set models\.toy\.path",
        ),
    ],
)
def test_a_bad_checkpoint_is_refused(run, tmp_path, out, inside, entry, message):
    bad = model_command(out, **{"path": str(write(tmp_path / "folder", inside)), **entry})
    error = run(bad).error
    assert re.search(message, error), error
    assert names(out) == []
    assert run(model_command(out, path=str(write(tmp_path / "good", CHECKPOINT)))).status == 0
    assert_refused(run, bad, out, message)


def test_a_revision_that_the_hub_does_not_have_is_refused(tmp_path, out):
    command = model_command(out, checkpoint="a/b", revision="1" * 40)
    with serve() as hub:
        done = beirgrid(*command, environment=hub.environment(tmp_path / "hub"))
    message = r"'toy': a/b at revision 1{40} cannot be fetched \(RevisionNotFoundError: 404"
    assert re.search(message, Fetched(done.returncode, done.stderr).error), done.stderr
    assert names(out) == []


def test_of_a_checkpoint_only_what_cannot_run_code_is_copied(run, tmp_path, out):
    folder = write(tmp_path / "folder", {**CHECKPOINT, **PICKLES, "1_Dense/model.safetensors": WEIGHTS})
    done = run(model_command(out, path=str(folder), files={"model.safetensors": SHA256}))
    assert done.status == 0, done.stderr
    expected = {*CHECKPOINT, "1_Dense/model.safetensors"}
    assert set(contents(out / "checkpoint")) == set(facts(out, "model")["files"]) == expected
    assert facts(out, "model")["files"]["model.safetensors"] == SHA256
    assert set(contents(folder)) == {*expected, *PICKLES}


def test_links_of_a_checkpoint_are_copied_as_what_they_name(run, tmp_path, out):
    """The hub's cache keeps a snapshot as links to its blobs."""
    blobs = write(tmp_path / "blobs", {**CHECKPOINT, "shared/config.json": b"{}"})
    (tmp_path / "snapshot").mkdir()
    for name in (*CHECKPOINT, "shared"):
        (tmp_path / "snapshot" / name).symlink_to(blobs / name)
    (tmp_path / "snapshot/1_Pooling").symlink_to("shared")
    (tmp_path / "link").symlink_to("snapshot")
    assert run(model_command(out, path=str(tmp_path / "link"))).status == 0
    copied = out / "checkpoint"
    assert set(contents(copied)) == {*CHECKPOINT, "shared/config.json", "1_Pooling/config.json"}
    assert {name: (copied / name).read_bytes() for name in CHECKPOINT} == CHECKPOINT
    assert not any(path.is_symlink() for path in copied.rglob("*"))


def test_a_checkpoint_of_ones_own_that_reads_files_outside_of_it_is_not_opened(tmp_path, tiny_models):
    from beirgrid import open_encoder

    shutil.copytree(tiny_models["dense"], tmp_path / "own")
    (tmp_path / "own/model.safetensors").rename(tmp_path / "outside.safetensors")
    (tmp_path / "own" / SAFETENSORS_INDEX).write_bytes(_index("../outside.safetensors"))
    with pytest.raises(DataError, match=r"own/model\.safetensors\.index\.json names '\.\./outside\.safetensors'"):
        open_encoder(tmp_path / "own", {"family": "dense", "similarity": "cosine"})


# ---- what is kept of good collections


def test_what_made_it_is_written_beside_it(good):
    assert rows(good) == DOCUMENTS
    assert rows(good, "queries") == QUERIES[:2]
    assert (good / "qrels.tsv").read_text() == HEADER + "q2\td3\t2\nq2\td1\t0\nq1\td1\t1\n"
    assert names(good) == ["corpus.json", "corpus.parquet", "dataset.json", "qrels.tsv", "queries.parquet"]
    settings = files.read_json(good / "corpus.json")["job"]["settings"]
    assert settings["entry"] == {"source": "local", "path": os.path.relpath(good.with_name("folder"))}
    digests = {name: hashlib.sha256((good / name).read_bytes()).hexdigest() for name in ARTIFACTS}
    assert facts(good, "corpus") == {
        "documents": 3,
        "duplicates_dropped": 0,
        "empty_documents": 0,
        "bytes": (good / "corpus.parquet").stat().st_size,
        "sha256": digests.pop("corpus.parquet"),
    }
    counts = {"queries": 2, "judgements": 3, "relevant": 2, "unknown_documents": 0}
    assert facts(good).items() >= {**counts, "sha256": digests}.items()


ARTIFACTS = ("corpus.parquet", "queries.parquet", "qrels.tsv")
LINES = GOOD["corpus.jsonl"].splitlines(keepends=True)
LINE_ENDS: dict[str, Callable[[str], str]] = {
    "lf": str,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "blank-lines": lambda text: "\n" + text.replace("\n", "\n\n  \n"),
    "no-last-line-end": str.rstrip,
}
ODD_FORMS: dict[str, dict[str, Content]] = {
    "gz of several members": {"corpus.jsonl": None, "corpus.jsonl.gz": b"".join(map(gz, LINES))},
    "gz members that split a line": {
        "corpus.jsonl": None,
        "corpus.jsonl.gz": gz(LINES[0][:9]) + gz(LINES[0][9:] + LINES[1] + LINES[2]),
    },
    "gz with zeros after": {"corpus.jsonl": None, "corpus.jsonl.gz": gz(DOCUMENTS) + bytes(512)},
    "folder beside": {"corpus.jsonl.gz": Path.mkdir},
    "byte order mark before TREC's": {"qrels/test.tsv": "\ufeffq1 0 d1 1\nq2 0 d3 +2\nq2 0 d1 0\n"},
    "CRCRLF": {name: text.replace("\n", "\r\r\n") for name, text in GOOD.items()},
    "judged twice alike": {"qrels/test.tsv": QRELS + "q1\td1\t1\n"},
    "link": {"corpus.jsonl": lambda path: (path.with_name("c").write_text("".join(LINES)), path.symlink_to("c"))},
}


def artifacts(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in ARTIFACTS]


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8], ids=["no-bom", "bom"])
@pytest.mark.parametrize("change", LINE_ENDS.values(), ids=LINE_ENDS)
def test_the_same_collection_in_any_form_gives_the_same_bytes(fetch, good, out, change, bom, zipped):
    form: dict[str, Content] = {}
    for name, text in GOOD.items():
        data = bom + change(text).encode()
        form |= {name: None, f"{name}.gz": gzip.compress(data)} if zipped else {name: data}
    assert fetch(form) == []
    assert artifacts(out) == artifacts(good)


@pytest.mark.parametrize("changes", ODD_FORMS.values(), ids=ODD_FORMS)
def test_odd_forms_of_the_same_collection_give_the_same_bytes(fetch, good, out, changes):
    assert fetch(changes) == []
    assert artifacts(out) == artifacts(good)


SIGNS = r"""" ' \ / ../../x # %s {id} $(id) `id` * , ; : - --help & N/A NA nan null None true 0 -1 007 1e3 1.0"""
ODD_IDS = [
    *SIGNS.split(),
    *("query-id", "corpus-id", "é", "\u200b", "x\ufeff", "\u202eabc", "👍🏽", "e\u0301", "\U0010ffff"),
    *("\x00", "a\x00b", "\x7f", "\x1b[2J"),
]


def test_odd_ids_are_kept(fetch, tmp_path, out):
    """Each is that of a document with one text, and of a query with another."""
    documents, asked = ([{"_id": one, "title": "", "text": text} for one in ODD_IDS] for text in ("odd", "odder"))
    changes: dict[str, Content] = {"corpus.jsonl": [*DOCUMENTS, *documents], "queries.jsonl": [*QUERIES, *asked]}
    (warning,) = fetch(changes | qrels("".join(f"{one}\td1\t1\nq1\t{one}\t2\n" for one in ODD_IDS)))
    assert warning.startswith(f"{len(ODD_IDS):,} queries have the id of a document with another text")
    assert rows(out) == [*DOCUMENTS, *documents]
    texts, grades = collection.read_queries(out / "queries.parquet"), read_qrels(out / "qrels.tsv")
    assert {one: texts[one] for one in ODD_IDS} == dict.fromkeys(ODD_IDS, "odder")
    assert all(grades[one] == {"d1": 1} for one in ODD_IDS)
    assert grades["q1"] == {"d1": 1} | dict.fromkeys(ODD_IDS, 2)
    rankings = {one: runs.Ranking([one, "d1"], np.array([2, 1], np.float32)) for one in ODD_IDS}
    runs.write(tmp_path / "x.run.gz", rankings, "odd")
    assert {query: ids for query, (ids, _) in runs.read(tmp_path / "x.run.gz").items()} == {
        one: [one, "d1"] for one in ODD_IDS
    }


@pytest.mark.parametrize(
    ("document", "title", "text", "empty"),
    [
        ({"text": "x"}, "", "x", False),
        ({"title": None, "text": "x"}, "", "x", False),
        ({"title": "t"}, "t", "", False),
        ({}, "", "", True),
        ({"title": " ", "text": "\n"}, " ", "\n", True),
    ],
)
def test_a_document_keeps_its_row_whatever_it_lacks(run, tmp_path, out, document, title, text, empty):
    folder = lay(tmp_path / "folder", {"corpus.jsonl": [DOCUMENTS[0], {"_id": "odd", **document}, DOCUMENTS[1]]})
    warnings = run(corpus_command(folder, out)).warnings
    assert rows(out) == [DOCUMENTS[0], {"_id": "odd", "title": title, "text": text}, DOCUMENTS[1]]
    assert warnings == (["1 document without title and text"] if empty else [])
    assert facts(out, "corpus")["empty_documents"] == empty


@pytest.mark.parametrize("size", [1, 3, 5, 10, 11])
def test_rows_stay_in_order_over_row_groups(run, tmp_path, out, monkeypatch, size):
    monkeypatch.setattr(collection, "ROW_GROUP", size)
    documents = [{"_id": f"d{(i * 7) % 10}", "title": "", "text": str(i)} for i in range(10)]
    done = run(corpus_command(lay(tmp_path / "folder", {"corpus.jsonl": documents}), out, documents=10))
    assert done.status == 0, done.stderr
    path = out / "corpus.parquet"
    assert pq.read_metadata(path).num_row_groups == -(-10 // size)
    assert rows(out) == documents
    part = [document.text for group in collection.read_documents(path, 2, 8) for document in group]
    assert part == ["2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize("size", [2, 100], ids=["across-row-groups", "in-one-row-group"])
def test_the_first_of_duplicate_documents_is_kept_where_allowed(run, tmp_path, out, monkeypatch, size):
    monkeypatch.setattr(collection, "ROW_GROUP", size)
    documents = [{"_id": name, "title": "", "text": str(i)} for i, name in enumerate("abacdbae")]
    folder, allowed = lay(tmp_path / "folder", {"corpus.jsonl": documents}), ["duplicate-documents"]
    warnings = run(corpus_command(folder, out, documents=5, allow=allowed)).warnings
    assert warnings == ["3 duplicate documents are dropped (the first of each id is kept)"]
    assert rows(out) == [documents[i] for i in (0, 1, 3, 4, 7)]
    assert (facts(out, "corpus")["documents"], facts(out, "corpus")["duplicates_dropped"]) == (5, 3)
    done = run(corpus_command(folder, tmp_path / "other", documents=8, allow=allowed))
    assert done.status == 1
    assert "has 5 documents; the registry says 8" in done.stderr.splitlines()[-1]
    assert names(tmp_path / "other") == []


def test_the_first_of_duplicate_queries_is_kept_where_allowed(fetch, out):
    again = [json.dumps({"_id": name, "text": "again"}) for name in ("q2", "unjudged", "q2")]
    (warning,) = fetch(query(*again), {"allow": ["duplicate-queries"]})
    assert warning.startswith("3 duplicate queries")
    assert rows(out, "queries") == QUERIES[:2]
    assert facts(out)["duplicates_dropped"] == 3


def test_an_empty_query_is_kept_where_allowed(fetch, out):
    changes = {**query('{"_id": "q3", "text": ""}'), **qrels("q3\td1\t1\n")}
    fetch(changes, {"allow": ["empty-queries"]})
    assert collection.read_queries(out / "queries.parquet")["q3"] == ""


def test_an_empty_query_that_nobody_judged_does_no_harm(fetch, out):
    assert fetch(query('{"_id": "q3", "text": ""}')) == []
    assert list(collection.read_queries(out / "queries.parquet")) == ["q2", "q1"]


@pytest.mark.parametrize("grade", [-2, 0, 1, 3])
def test_grades_are_kept(fetch, out, grade):
    assert fetch(judged(f"q1\td1\t{grade}\nq1\td2\t1\nq2\td3\t-1\n")) == []
    assert read_qrels(out / "qrels.tsv") == {"q1": {"d1": grade, "d2": 1}, "q2": {"d3": -1}}
    counts = {"judgements": 3, "relevant": 1 + (grade > 0), "queries_without_relevant": 1}
    assert facts(out).items() >= counts.items()


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("score\tcorpus-id\tquery-id\n", "{2}\t{1}\t{0}\n"),
        ("query_id\tCorpus-ID\tscore\n", "{0}\t{1}\t{2}\n"),
        ("annotator\tcorpus_id\tScore\tquery_id\n", "me\t{1}\t{2}\t{0}\n"),
        ("query-id corpus-id score\n", "{0} {1} {2}\n"),
        ("", "{0} 0 {1} {2}\n"),
        ("", "{0}\tQ0\t{1}\t{2}\n"),
        ("", "  {0}  0.5 {1}\t{2} \r\n"),
    ],
)
def test_qrels_are_read_by_the_names_of_their_header_or_as_trecs(fetch, out, header, line):
    judgements = [("q1", "d1", 1), ("q2", "d3", 2), ("q2", "d1", 0)]
    assert fetch(judged(header + "".join(line.format(*judgement) for judgement in judgements))) == []
    assert read_qrels(out / "qrels.tsv") == {"q1": {"d1": 1}, "q2": {"d3": 2, "d1": 0}}


# ---- queries that are documents


COUNTING = {  # ids from 1 on, for documents as for queries
    "corpus.jsonl": [{"_id": i, "title": f"title {i}", "text": f"text {i}"} for i in range(1, 21)],
    "queries.jsonl": [{"_id": i, "text": f"query {i}"} for i in range(1, 11)],
    "qrels/test.tsv": "".join(f"{i}\t{i}\t1\n" for i in range(1, 11)),
}
OTHERS = {**COUNTING, "qrels/test.tsv": "".join(f"{i}\t{i + 1}\t1\n" for i in range(1, 11))}
EQUAL = {**OTHERS, "queries.jsonl": [{"_id": i, "text": f"text {i}"} for i in range(1, 11)]}


def not_ranked(out: Path) -> dict[str, set[str]]:
    return collection.read_restrictions(out / "queries.parquet")[0]


def test_equal_numbers_of_queries_and_documents_are_chance(fetch, out):
    (warning,) = fetch(COUNTING)
    assert warning.startswith("10 queries have the id of a document with another text")
    assert "datasets.tiny.queries_are_documents: true" in warning
    assert not_ranked(out) == {}
    assert facts(out).items() >= {"own_documents_dropped": 0, "same_ids_kept": 10, "excluded": 0}.items()


@pytest.mark.parametrize("size", [3, 100], ids=["across-row-groups", "in-one-row-group"])
def test_a_query_is_the_document_of_its_id_where_the_texts_are_equal(fetch, out, monkeypatch, size):
    monkeypatch.setattr(collection, "ROW_GROUP", size)
    texts = ["text 1", " text\n 2 ", "title 3 text 3", "title 4", "Text 5", "text 60", "text 8", *"xyz"]
    queries = [{"_id": i, "text": text} for i, text in enumerate(texts, start=1)]
    (warning,) = fetch({**OTHERS, "queries.jsonl": queries})
    assert warning.startswith("7 queries")
    assert not_ranked(out) == {"1": {"1"}, "2": {"2"}, "3": {"3"}}
    assert facts(out).items() >= {"own_documents_dropped": 3, "same_ids_kept": 7}.items()


@pytest.mark.parametrize(("said", "expected"), [(True, {str(i): {str(i)} for i in range(1, 11)}), (False, {})])
def test_the_entry_decides_whether_queries_are_documents(fetch, out, said, expected):
    assert fetch(OTHERS, queries_are_documents=said) == []
    assert not_ranked(out) == expected
    assert facts(out)["own_documents_dropped"] == len(expected)


@pytest.mark.parametrize(
    ("changes", "grade", "said"),
    [(OTHERS, 1, True), (EQUAL, 1, True), (EQUAL, 1, "auto"), (EQUAL, 0, "auto"), (EQUAL, -1, "auto")],
)
def test_an_own_document_that_is_judged_is_never_dropped(run, tmp_path, out, changes, grade, said):
    folder = lay(tmp_path / "folder", {**changes, **judged(f"{changes['qrels/test.tsv']}7\t7\t{grade}\n")})
    assert run(corpus_command(folder, out)).status == 0
    error = run(dataset_command(folder, out, queries_are_documents=said)).error
    assert error.startswith("dataset 'tiny': 1 query is a document")
    assert "'7' first" in error
    assert "set datasets.tiny.queries_are_documents: false" in error
    assert names(out) == ["corpus.json", "corpus.parquet"]


@pytest.mark.parametrize("grade", [0, -1])
def test_an_own_document_judged_not_relevant_is_dropped_where_the_entry_says_so(fetch, out, grade):
    fetch({**OTHERS, **judged(f"7\t7\t{grade}\n7\t8\t1\n")}, queries_are_documents=True)
    assert not_ranked(out) == {"7": {"7"}}


def test_texts_are_compared_within_the_memory_of_a_row_group(run, tmp_path, out, monkeypatch):
    """Documents of a megabyte each bear the ids of queries."""
    monkeypatch.setattr(collection, "ROW_GROUP", 5)
    changes = {
        "corpus.jsonl": [{"_id": f"d{i}", "text": f"{i}-" * 300_000} for i in range(100)],
        "queries.jsonl": [{"_id": f"d{i}", "text": "x"} for i in range(100)],
        "qrels/test.tsv": "".join(f"d{i}\td{i + 1}\t1\n" for i in range(99)),
    }
    folder = lay(tmp_path / "folder", changes)
    run(corpus_command(folder, out))
    tracemalloc.start()
    assert run(dataset_command(folder, out)).status == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6, peak  # a row group has 5 MB, all documents 90
    assert facts(out)["same_ids_kept"] == 99


def test_of_long_documents_few_are_in_memory(run, tmp_path, out, monkeypatch):
    """Whoever writes or reads them: a row group, the corpus with its expansions, or a sample for training."""
    monkeypatch.setattr(collection, "GROUP_TEXT", 25)
    documents = [{"_id": f"d{row}", "text": f"{row}" * 10} for row in range(7)]
    assert run(corpus_command(lay(tmp_path / "folder", {"corpus.jsonl": documents}), out)).status == 0
    assert pq.read_metadata(out / "corpus.parquet").num_row_groups == 3
    shards = []
    for shard, rows in enumerate((range(4), range(4, 7))):
        shards.append(tmp_path / f"{shard}.parquet")
        schema = collection.EXPANSION_SCHEMAS["query-generator"]
        pq.write_table(pa.table([[[f"q{row}"] for row in rows]], schema), shards[-1])
    expanded = list(collection.read_expanded(out / "corpus.parquet", shards))
    assert [document.text for group in expanded for document in group] == [f"{row * 10} q{row[0]}" for row in "0123456"]
    assert list(map(len, expanded)) == [2, 2, 2, 1]  # 13 letters each
    sampled = list(training_data.sample_documents(out / "corpus.parquet", 5, seed=0))
    assert list(map(len, sampled)) == [3, 2]
    names = [document.id for group in sampled for document in group]
    assert names == sorted(set(names))


def test_of_two_splits_each_takes_its_own_queries(run, fetch, tmp_path, out):
    fetch({"qrels/dev.tsv": HEADER + "unjudged\td1\t1\n"})
    assert list(collection.read_queries(out / "queries.parquet")) == ["q2", "q1"]
    assert run(dataset_command(tmp_path / "folder", out, split="dev", queries=1)).status == 0
    assert list(collection.read_queries(out / "queries.parquet")) == ["unjudged"]


def test_judgements_of_unknown_documents_are_counted_and_kept(fetch, out):
    (warning,) = fetch(qrels("q1\tgone\t1\nq2\tgone\t1\nq1\tlost\t0\n"))
    assert warning == "qrels name 2 documents that the corpus lacks, ['gone', 'lost']; they are kept"
    assert read_qrels(out / "qrels.tsv") == {
        "q2": {"d3": 2, "d1": 0, "gone": 1},
        "q1": {"d1": 1, "gone": 1, "lost": 0},
    }
    assert facts(out).items() >= {"unknown_documents": 2, "judgements": 6}.items()


def test_a_judgement_overruled_by_a_later_one_is_counted(fetch, out):
    (warning,) = fetch(qrels("q1\td1\t0\nq2\td3\t2\n"))
    assert warning.startswith("qrels judge 1 (query, document) pairs again with another grade")
    assert read_qrels(out / "qrels.tsv")["q1"] == {"d1": 0}


# ---- a full disk


FULL = re.compile("the disk is full.*Nothing half-written is left; free space and run again")


def big(name: str) -> list[dict[str, str]]:
    """Return 8000 documents that do not compress, whose ids begin with a name."""
    rng = random.Random(1)
    return [{"_id": f"{name}{i}", "title": "", "text": rng.randbytes(200).hex()} for i in range(8000)]


LONG_IDS = [{"_id": f"{i:0100}", "text": "x"} for i in range(20_000)]


@pytest.mark.parametrize("size", [500, collection.ROW_GROUP], ids=["at-a-row-group", "at-the-end"])
def test_a_disk_that_fills_up_under_a_corpus(run, tmp_path, full_disk, monkeypatch, size):
    monkeypatch.setattr(collection, "ROW_GROUP", size)
    large, out = lay(tmp_path / "large", {"corpus.jsonl": big("d")}), full_disk / "out"
    assert FULL.search(run(corpus_command(large, out)).error)
    assert names(out) == []
    assert run(corpus_command(lay(tmp_path / "small"), out)).status == 0
    assert_refused(run, corpus_command(large, out), out, FULL.pattern)


@pytest.mark.parametrize(
    "changes",
    [
        {"queries.jsonl": LONG_IDS, **judged("".join(f"{one['_id']}\td1\t1\n" for one in LONG_IDS))},
        {"queries.jsonl": big("xd"), **judged("".join(f"xd{i}\td1\t1\n" for i in range(8000)))},
    ],
    ids=["qrels", "queries"],
)
def test_a_disk_that_fills_up_under_a_dataset(run, tmp_path, full_disk, good, changes):
    shutil.copy(good / "corpus.parquet", full_disk)
    command = dataset_command(lay(tmp_path / "large", changes), full_disk)
    assert FULL.search(run(command).error)
    assert names(full_disk) == ["corpus.parquet"]
    assert run(dataset_command(lay(tmp_path / "small"), full_disk)).status == 0
    assert_refused(run, command, full_disk, FULL.pattern)


def test_a_disk_that_fills_up_under_a_checkpoint(run, tmp_path, full_disk):
    small = write(tmp_path / "small", CHECKPOINT)
    large = write(tmp_path / "large", {**CHECKPOINT, "model.safetensors": bytes(3_000_000)})
    assert run(model_command(full_disk, path=str(small))).status == 0
    assert_refused(run, model_command(full_disk, path=str(large)), full_disk, FULL.pattern)
    assert names(full_disk) == ["checkpoint", "model.json"]
