"""Stages that run served models: a kill, a full disk, a server that changes, and the tokens of requests."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from endpoint_server import Served, letters
from helpers import fetch_collection, main, tracked_configuration
from stage_words import stage_command

from beirgrid import config
from beirgrid.config.models import ListwiseReranker
from beirgrid.core.errors import ConfigError
from beirgrid.encoders.served import Listwise, messages, windows
from beirgrid.models import endpoints
from beirgrid.runs import runs
from beirgrid.stages.score import work as score

QUERIES, DOCUMENTS = 6, 40
TEXTS = [f"document {row} of {'abcdefghij'[row % 10] * 3}" for row in range(DOCUMENTS)]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a collection and the runs of two first stages that share half of their documents."""
    documents = [{"_id": f"d{row}", "text": text} for row, text in enumerate(TEXTS)]
    queries = [{"_id": f"q{row}", "text": text} for row, text in enumerate(TEXTS[:QUERIES])]
    qrels = [(query["_id"], "d0", 1) for query in queries]
    folder = fetch_collection(tmp_path / "site", documents, queries, qrels)
    for name, start in (("one", 0), ("two", 10)):
        ids = [f"d{row}" for row in range(start, start + 20)]
        ranking = runs.Ranking(ids, np.arange(20, 0, -1).astype(np.float32))
        runs.write(folder / f"{name}.run.gz", {query["_id"]: ranking for query in queries}, name)
    return folder


class Jobs:
    """The commands of jobs over a served model."""

    def __init__(self, served: Served, site: Path, family: str) -> None:
        self.site, self.model = site, site / "models/served"
        self.entry = {"family": family, "endpoint": {"model": "served"}}
        if family == "dense":
            self.entry["similarity"] = "cosine"
        connection = {"url": served.url, "key": "TESTED_KEY", "batch": 5, "concurrency": 1, "timeout": 2.0}
        self.connection = json.dumps(connection | {"price": {"input": 10.0}})
        fetched = {key: self.entry[key] for key in ("family", "endpoint")}
        fetch = ["--name", "served", "--entry", json.dumps(fetched), "--connection", self.connection]
        made = ["--output", str(self.model / "checkpoint"), "--record", str(self.model / "model.json")]
        assert main(["fetch", "model", *fetch, *made]) == 0

    def _model(self) -> list[str]:
        options = ["--model", json.dumps(self.entry), "--checkpoint", str(self.model / "checkpoint"), "--device", "cpu"]
        return [*options, "--connection", self.connection, "--corpus", str(self.site / "corpus.parquet")]

    def encode(self, folder: Path) -> list[str]:
        output = ["--output", str(folder / "0.npy"), "--record", str(folder / "0.json")]
        return ["encode", *self._model(), "--shard-size", "100", *output]

    def scored(self, first: str) -> dict:
        """Score a first stage, and return the facts of its record."""
        first_stage = ["--queries", str(self.site / "queries.parquet"), "--run", str(self.site / f"{first}.run.gz")]
        output = ["--pairs", str(self.site / "pairs"), "--record", str(self.site / f"{first}.json")]
        assert main(["score", *self._model(), *first_stage, "--depth", "20", *output]) == 0
        return dict(json.loads((self.site / f"{first}.json").read_text())["facts"])


@pytest.fixture
def jobs(served: Served, site: Path) -> Callable[[str], Jobs]:
    return lambda family: Jobs(served, site, family)


def _inputs(served: Served) -> list[str]:
    return [text for path, body in served.asked if "embeddings" in path for text in body["input"]]


def test_a_killed_job_goes_on_after_the_last_answer(served, jobs, tmp_path):
    encoding = jobs("dense").encode(tmp_path)
    served.asked.clear()
    served.faults += [*[None] * 4, *["hang"] * 3]  # the probe and three batches are answered
    served.hang = 30.0
    with subprocess.Popen(stage_command(*encoding), stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while len(served.asked) < 5:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "0.npy").exists()
    answered = _inputs(served)[3:18]  # after the texts of the probe
    served.asked.clear()
    served.faults.clear()
    assert main(encoding) == 0
    assert not {*answered} & {*_inputs(served)}
    assert len(_inputs(served)) == 3 + DOCUMENTS - 15
    expected = letters(TEXTS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "0.npy"), expected, atol=1e-6)
    facts = json.loads((tmp_path / "0.json").read_text())["facts"]
    assert facts["requests"] == DOCUMENTS / 5  # those of the killed job included
    assert not list(tmp_path.glob("*.answers"))


def test_a_record_counts_what_earlier_jobs_asked(served, jobs, monkeypatch):
    monkeypatch.setattr(score, "PART", 40)
    jobs = jobs("cross-encoder")
    first = jobs.scored("one")
    assert first["requests"] == QUERIES * 20 / 5
    assert first["price"] == pytest.approx(first["tokens"] * 10 / 1e6)
    assert (first["queries"], first["pairs_scored"]) == (QUERIES, QUERIES * 20)

    served.asked.clear()
    again = jobs.scored("one")
    assert len([path for path, _ in served.asked if "rerank" in path]) <= 1  # the probe
    for name in ("requests", "tokens", "price"):
        assert again[name] == pytest.approx(first[name])
    assert (again["device"], again["pairs_scored"]) == ("endpoint", 0)

    # Of two first stages that share half of their pairs, each record counts the price of the shared ones.
    other = jobs.scored("two")
    assert other["pairs_scored"] == QUERIES * 10
    assert other["requests"] == pytest.approx(QUERIES * 20 / 5)
    assert 0.9 < other["price"] / first["price"] < 1.1


def test_a_server_that_changes_its_dimensions_is_noticed(served, jobs, tmp_path, capsys):
    """Between the probe and the first batch."""

    def narrower(answer: dict) -> dict:
        return answer | {"data": [{**row, "embedding": row["embedding"][:20]} for row in answer["data"]]}

    encoding = jobs("dense").encode(tmp_path)
    served.faults += [None, *[narrower] * endpoints.ATTEMPTS]
    assert main(encoding) == 1
    assert "its vectors have 20 dimensions, not 26" in capsys.readouterr().err
    assert not (tmp_path / "0.npy").exists()


def test_a_full_disk_is_named_and_answers_stay_whole(served, jobs, full_disk, capsys):
    encoding = jobs("dense").encode(full_disk)
    filler = full_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(full_disk).free - 20_000))
    assert main(encoding) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not (full_disk / "0.npy").exists()
    answered = list(full_disk.rglob("*.json.gz"))
    assert answered
    assert all("answer" in json.loads(gzip.decompress(path.read_bytes())) for path in answered)
    filler.unlink()
    served.asked.clear()
    assert main(encoding) == 0
    assert len(_inputs(served)) == 3 + DOCUMENTS - 5 * len(answered)


# Listwise reranking: what RankGPT's authors send (rank_gpt.py, Apache 2.0)

SYSTEM = "You are RankGPT, an intelligent assistant that can rank passages based on their relevancy to the query."
BEFORE = (
    "I will provide you with 2 passages, each indicated by number identifier []. \nRank the passages based on their "
    "relevance to query: what is lift?."
)
AFTER = (
    "Search Query: what is lift?. \nRank the 2 passages above based on their relevance to the search query. The "
    "passages should be listed in descending order using identifiers. The most relevant passages should be listed "
    "first. The output format should be [] > [], e.g., [1] > [2]. Only response the ranking results, do not say any "
    "word or explain."
)


def test_the_prompt_is_that_of_rankgpt():
    assert [tuple(turn.values()) for turn in messages("what is lift?", ["a force", "a cell"])] == [
        ("system", SYSTEM),
        ("user", BEFORE),
        ("assistant", "Okay, please provide the passages."),
        ("user", "[1] a force"),
        ("assistant", "Received passage [1]."),
        ("user", "[2] a cell"),
        ("assistant", "Received passage [2]."),
        ("user", AFTER),
    ]


@pytest.mark.parametrize(("documents", "window", "step"), [(100, 20, 10), (20, 20, 10), (30, 10, 5), (40, 20, 20)])
def test_windows_are_those_of_rankgpt_where_they_fit(documents, window, step):
    expected, start, stop = [], documents - window, documents
    while start >= 0:
        expected.append((start, stop))
        start, stop = start - step, stop - step
    assert list(windows(documents, window, step)) == expected


def test_documents_move_up_from_window_to_window():
    """The best of the last window may become the first of all; a document that an answer omits stays behind."""

    def chat(messages):
        texts = [turn["content"].split()[1] for turn in messages if turn["content"].startswith("[")]
        best = sorted(range(len(texts)), key=lambda place: -int(texts[place]))
        return " > ".join(f"[{place + 1}]" for place in best[:-1])

    entry = ListwiseReranker.model_validate(LISTWISE | {"window": 4, "step": 2})
    ranker = Listwise(entry, chat)
    scores = ranker.scores("q", ["1", "3", "2", "7", "4", "0", "6", "8"])
    assert np.argsort(-scores).tolist() == [7, 3, 1, 0, 6, 2, 4, 5]
    assert ranker.facts() == {
        "prompt": messages("{query}", ["{document}"]),
        **{"windows": 3, "windows_without_an_order": 0, "windows_with_gaps": 3},
    }


@pytest.mark.parametrize("answer", ["[" + "1" * 4301, "[9] > [3]", "no"])
def test_an_answer_of_numbers_of_no_document_is_no_order(answer):
    ranker = Listwise(ListwiseReranker.model_validate(LISTWISE), lambda messages: answer)
    assert ranker.scores("q", ["a", "b"]).tolist() == [1, 0]
    assert ranker.counts["windows_without_an_order"] == 1


# The configuration

ENDPOINT = {"model": "m", "url": "https://x.org/v1"}
SERVED = {"family": "dense", "similarity": "cosine", "endpoint": ENDPOINT}
LISTWISE = {"family": "listwise-reranker", "endpoint": ENDPOINT}
SECRET = "sk-secret-1"  # in place of the name of its variable
CHECKPOINT = {"family": "dense", "similarity": "cosine", "checkpoint": "a/b", "revision": "0" * 40}
GPL = {"recipe": "gpl", "base": "base", "generator": "generator", "teacher": "teacher"}
ENTRIES = {
    "base": SERVED,
    "generator": {"family": "query-generator", "checkpoint": "a/g", "revision": "0" * 40},
    "teacher": {"family": "cross-encoder", "endpoint": ENDPOINT},
}
NO_ADDRESSES = [
    f"https://a:{SECRET}@x",
    f"https://a:{SECRET}%40x/v1",
    f"http://x/v1?key={SECRET}",
    "ftp://x",
    "x/v1",
    "$1",
]
PAID = {"budget": 5.0, "price": {"output": 1.0}}


def reached(entry: dict = SERVED, **keys: object) -> dict:
    """Return an entry whose endpoint has more keys."""
    return entry | {"endpoint": ENDPOINT | keys}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (SERVED | {"checkpoint": "a/b"}, "models.m: the key 'checkpoint' does not go with endpoint"),
        (SERVED | {"max_length": 128}, "the key 'max_length' does not go with endpoint"),
        (SERVED | {"prompts": {"own": True}}, "models.m: prompts.own: a server does not tell the prompts"),
        (SERVED | {"endpoint": {"model": "m"}}, "models.m.endpoint: needs the key 'url'"),
        (SERVED | {"endpoint": f"https://a:{SECRET}@x"}, "m.endpoint: Input should be a valid dictionary"),
        (reached(budget=5.0), "endpoint: a budget needs a price"),
        (reached(LISTWISE, **PAID), "endpoint: a budget needs body: {max_tokens: …}"),
        (reached(key=SECRET), "m.endpoint.key: String should match"),
        (reached(key=123456789), "m.endpoint.key: Input should be a"),
        *((reached(url=url), "m.endpoint.url: String should match") for url in NO_ADDRESSES),
        (reached(api_key=SECRET), "m.endpoint.api_key: Extra inputs are not permitted"),
        (reached({"family": "sparse"}), "a server runs dense, cross-encoder, listw"),
        (LISTWISE | {"window": 5, "step": 6}, "models.m: step: 6 is more than the window of 5"),
        (CHECKPOINT | {"train": GPL}, "models.m: the key 'checkpoint' does not go with train"),
        (SERVED | {"train": GPL}, "models.m: the key 'endpoint' does not go with train"),
        (
            {"family": "dense", "similarity": "cosine", "train": GPL},
            "models.m.train.teacher: 'teacher' is run by a server, and training needs weights",
        ),
    ],
)
def test_entries_that_no_server_can_run_are_refused(entry, message):
    raw = tracked_configuration()
    raw["models"] |= {**ENTRIES, "m": entry}
    with pytest.raises(ConfigError) as error:
        config.load(raw)
    assert message in str(error.value)
    assert SECRET not in str(error.value)
    assert "123456789" not in str(error.value)


def test_a_listwise_model_has_one_depth_after_a_first_stage():
    raw = tracked_configuration()
    raw["models"]["m"] = LISTWISE
    of_depth = {"first_stage": "bm25", "reranker": "m"}
    raw["systems"] |= {"a": of_depth | {"depth": 20}, "b": of_depth | {"depth": 40}}
    with pytest.raises(ConfigError, match=r"systems\.a\.depth: systems let one listwise model order other numbers"):
        config.load(raw)
    raw["systems"]["b"]["depth"] = 20
    with contextlib.chdir("/"):
        config.load(raw)
