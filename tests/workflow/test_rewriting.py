"""Systems that search with rewritten queries, beside the same computations by hand."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import opened, save_changed, save_chat
from helpers import main, python
from sentence_transformers import SentenceTransformer
from small import collection, finish, job_counts, run
from transformers import AutoTokenizer

from beirgrid import config
from beirgrid.collections import rewriting
from beirgrid.collections.collection import read_documents, read_queries
from beirgrid.core import paths
from beirgrid.core.errors import BeirgridError
from beirgrid.encoders.query_generator import GeneratorModel
from beirgrid.execution import open_systems
from beirgrid.graph import artifacts
from beirgrid.graph.dag import Job, jobs_behind
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.runs import runs
from beirgrid.search import lucene
from beirgrid.stages.rewrite import work

pytestmark = pytest.mark.slow

HYDE = "Please write a passage to answer the question.\nQuestion: {}\nPassage:"
QUERY2DOC = "Write a passage that answers the given query:\n\nQuery: {}\nPassage:"
SYSTEMS: dict[str, dict[str, Any]] = {
    "bm25": {"retriever": "bm25", "fields": "flat"},
    "tiny": {"retriever": "tiny"},
    **{
        f"{first}-{method}": {"first_stage": first, "query": {"method": method, "file": "{dataset}.jsonl"}}
        for first in ("bm25", "tiny")
        for method in ("query2doc", "keywords", "own", "hyde")
    },
}


class Site:
    """A grid over one small collection, whose jobs run in this process."""

    def __init__(self, models: dict[str, Path], systems: dict[str, Any], **more: Any) -> None:
        names = {"tiny": "dense", "writer": "query-generator"}
        families = {"dense": {"similarity": "cosine"}, "query-generator": {}}
        raw = {
            "corpora": {"one": {"source": "local", "path": "data", "documents": 60}},
            "datasets": {name: {"corpus": "one"} for name in ("one", "again")},
            "models": {name: {"family": of, **families[of], "path": str(models[of])} for name, of in names.items()},
            "systems": systems,
            "grid": {"systems": [*systems], "datasets": ["one"]},
            "metrics": ["ndcg@10"],
            "device": "cpu",
            "retrieve": {"depth": 20},
            "encode": {"precision": "float32"},
        }
        raw["models"] |= more
        self.grid = Grid(config.load(copy.deepcopy(raw)))
        self.rules = Rules(self.grid, own_python=True)
        self.ran: list[Job] = []

    def run(self, system: str, dataset: str = "one") -> runs.Run:
        """Run the jobs behind a run that have no record, and return the run."""
        end = artifacts.run(self.grid, system, dataset)
        for job in jobs_behind(self.grid, end):
            if not Path(job.record).is_file():
                self.rules.run(job)
                self.ran.append(job)
        return runs.read(end.path)

    def texts(self, system: str, dataset: str = "one") -> dict[str, list[str]]:
        """Return the texts of a system."""
        name = self.grid.rewriting(system).name
        return rewriting.read(Path(paths.REWRITES.format(rewriting=name, dataset=dataset)))


def _lines(queries: dict[str, str]) -> Iterator[dict[str, str]]:
    for number, (query, text) in enumerate(queries.items()):
        yield {"id": query, "text": f"{text[::-1]} passage {number}"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with a collection, and texts for its queries."""
    collection(tmp_path / "data", 60)
    rows = map(json.loads, (tmp_path / "data/queries.jsonl").read_text().splitlines())
    lines = _lines({row["_id"]: row["text"] for row in rows})
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.chdir(tmp_path):
        yield tmp_path


def _ranked(query: str, ids: list[str], scores: Any) -> runs.Ranking:
    """Rank documents for a query, which may be one of them."""
    return runs.canonical(query, ids, scores, 20, {query})


def _by_words(queries: dict[str, str]) -> runs.Run:
    """Search with BM25 for texts that are joined here."""
    index = Path("results/indexes/bm25-flat/one/lucene")
    with closing(lucene.Searcher(index, fields="flat", language="en", k1=0.9, b=0.4, memory_mb=500)) as searcher:
        return {query: _ranked(query, *searcher.search(text, 21)) for query, text in queries.items()}


def _by_vectors(model: Path, vectors: Callable[[SentenceTransformer], np.ndarray], queries: list[str]) -> runs.Run:
    """Rank by the products of sentence-transformers' vectors."""
    encoder = SentenceTransformer(str(model), device="cpu")
    documents = [document for block in read_documents("results/corpora/one/corpus.parquet") for document in block]
    texts = encoder.encode([document.full_text for document in documents], normalize_embeddings=True)
    scores = vectors(encoder).astype(np.float64) @ texts.astype(np.float64).T
    ids = [document.id for document in documents]
    return {query: _ranked(query, ids, scores[row]) for row, query in enumerate(queries)}


def _assert_alike(run: runs.Run, expected: runs.Run, tolerance: float) -> None:
    assert run.keys() == {query for query, ranking in expected.items() if ranking.ids}
    for query, ranking in run.items():
        np.testing.assert_allclose(ranking.scores, expected[query].scores, atol=tolerance, err_msg=query)
        assert ranking.ids == expected[query].ids, query


def _read(method: str, query: str, texts: list[str], *, words: bool) -> str:
    """What the papers say that a retriever reads."""
    if method == "own":
        return " ".join(texts)
    if method == "hyde":
        return f"{query} {' '.join(texts)}"
    return f"{query} {query} {query} {query} {query} {texts[0]}" if words else f"{query} [SEP] {texts[0]}"


def test_a_file_of_texts_is_read_as_the_papers_say(folder, tiny_models):
    site = Site(tiny_models, SYSTEMS)
    for system in SYSTEMS:
        site.run(system)
    queries = read_queries(paths.QUERIES.format(dataset="one"))
    texts = {line["id"]: [line["text"]] for line in _lines(queries)}
    for method in ("query2doc", "keywords", "own", "hyde"):
        read = {query: _read(method, text, texts[query], words=True) for query, text in queries.items()}
        _assert_alike(site.run(f"bm25-{method}"), _by_words(read), 0)

        def vectors(encoder: SentenceTransformer, method: str = method) -> np.ndarray:
            if method != "hyde":
                read = [_read(method, text, texts[query], words=False) for query, text in queries.items()]
                return encoder.encode(read, normalize_embeddings=True)
            both = ([*queries.values()], [texts[query][0] for query in queries])
            return np.mean([encoder.encode(side, normalize_embeddings=True) for side in both], axis=0)

        _assert_alike(site.run(f"tiny-{method}"), _by_vectors(tiny_models["dense"], vectors, [*queries]), 1e-5)
    assert [job.rule for job in site.ran].count("rewrite") == 4  # BM25 and the dense model share the texts
    assert site.run("bm25")["q0"].ids != site.run("bm25-own")["q0"].ids


def _generated(**more: Any) -> dict[str, dict[str, Any]]:
    """Systems with a generator: both methods over BM25 and over a dense model."""
    methods = {"query2doc": {}, "hyde": {"texts": 3}}
    return {first: SYSTEMS[first] for first in ("bm25", "tiny")} | {
        f"{first}-{method}": {"first_stage": first, "query": {"method": method, "generator": "writer", **keys, **more}}
        for first in ("bm25", "tiny")
        for method, keys in methods.items()
    }


def test_texts_of_a_generator_follow_from_the_prompt_and_the_seed(folder, tiny_models):
    site = Site(tiny_models, _generated())
    for system in _generated():
        site.run(system)
    queries = read_queries(paths.QUERIES.format(dataset="one"))
    writer = opened("query-generator", tiny_models["query-generator"], {})
    for query, text in queries.items():  # each alone
        [passages] = writer.generate([HYDE.format(text)], per_text=3, seed=0)
        assert site.texts("tiny-hyde")[query] == [passage for passage in passages if passage]
        [passages] = writer.generate([QUERY2DOC.format(text)], per_text=1, seed=0)
        assert site.texts("bm25-query2doc")[query] == [passage for passage in passages if passage]
    assert [job.rule for job in site.ran].count("rewrite") == 2
    texts = site.texts("tiny-hyde")
    read = {query: " ".join([text, *texts[query]]) for query, text in queries.items()}
    _assert_alike(site.run("bm25-hyde"), _by_words(read), 0)

    def means(encoder: SentenceTransformer) -> np.ndarray:
        of_each = [[text, *texts[query]] for query, text in queries.items()]
        return np.array([encoder.encode(some, normalize_embeddings=True).mean(0) for some in of_each])

    _assert_alike(site.run("tiny-hyde"), _by_vectors(tiny_models["dense"], means, [*queries]), 1e-5)
    for system in ("bm25-query2doc", "tiny-query2doc", "bm25-hyde", "tiny-hyde"):
        again = open_systems.open_system(system, "one", "cpu").rank(queries)
        assert {query: ranking.ids for query, ranking in again.items() if ranking.ids} == {
            query: ranking.ids for query, ranking in site.run(system).items()
        }
    text = f"{queries['q2']} {queries['q1']}"  # nobody has asked this
    [[passage]] = writer.generate([QUERY2DOC.format(text)], per_text=1, seed=0)
    opened_again = open_systems.open_system("bm25-query2doc", "one", "cpu")
    new = opened_again.rank({"new": text})
    _assert_alike(new, _by_words({"new": _read("query2doc", text, [passage], words=True)}), 0)
    other = Site(tiny_models, _generated(seed=1))
    other.run("bm25-query2doc")
    assert other.texts("bm25-query2doc") != site.texts("bm25-query2doc")


def test_texts_that_are_longer_than_the_model_reads_are_counted(folder, tiny_models, caplog):
    systems = {name: SYSTEMS[name] for name in ("bm25", "tiny", "tiny-query2doc", "tiny-hyde")}
    short = {"family": "dense", "similarity": "cosine", "max_length": 24, "path": str(tiny_models["dense"])}
    site = Site(tiny_models, systems, tiny=short)
    tokenizer = AutoTokenizer.from_pretrained(tiny_models["dense"])
    for system in ("tiny-query2doc", "tiny-hyde"):
        site.run(system)
        queries = read_queries(paths.QUERIES.format(dataset="one"))
        texts = {query: of_query[0] for query, of_query in site.texts(system).items()}
        joined = [f"{text} [SEP] {texts[query]}" for query, text in queries.items()]
        read = joined if system == "tiny-query2doc" else [*texts.values()]
        longer = sum(len(ids) > 24 for ids in tokenizer(read)["input_ids"])
        facts = json.loads(Path(paths.RUN_RECORD.format(system=system, dataset="one")).read_text())["facts"]
        assert facts["rewrites_truncated"] == longer > 0, system
        assert f"{longer} rewritten text" in caplog.text
    site.run("tiny")
    assert "rewrites_truncated" not in Path(paths.RUN_RECORD.format(system="tiny", dataset="one")).read_text()


def test_a_job_that_was_killed_writes_no_text_again(folder, tiny_models, monkeypatch):
    site = Site(tiny_models, _generated())
    monkeypatch.setattr(work, "BLOCK", 4)
    asked: list[str] = []
    generate = GeneratorModel.generate

    def interrupted(self: GeneratorModel, texts: list[str], **keys: Any) -> list[list[str]]:
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.extend(texts)
        return generate(self, texts, **keys)

    def counted(self: GeneratorModel, texts: list[str], **keys: Any) -> list[list[str]]:
        asked.extend(texts)
        return generate(self, texts, **keys)

    monkeypatch.setattr(GeneratorModel, "generate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        site.run("bm25-query2doc")
    monkeypatch.setattr(GeneratorModel, "generate", counted)
    site.run("bm25-query2doc")
    assert len(asked) == len(set(asked)) == 11
    facts = json.loads(Path(jobs_record(site, "bm25-query2doc")).read_text())["facts"]
    assert facts["query_seconds"] > 0  # those of the first attempt, too
    killed = site.texts("bm25-query2doc")
    Path(jobs_record(site, "bm25-query2doc")).unlink()
    site.run("bm25-query2doc")
    site.run("bm25-query2doc", "again")  # another dataset with these queries
    assert site.texts("bm25-query2doc") == site.texts("bm25-query2doc", "again") == killed
    of_again = json.loads(Path(jobs_record(site, "bm25-query2doc", "again")).read_text())["facts"]
    assert of_again["query_seconds"] == facts["query_seconds"]
    assert len(asked) == 11
    [place, *_] = Path("results/rewrites").glob("*/texts/*/*.json")
    place.write_text("{")
    Path(jobs_record(site, "bm25-query2doc")).unlink()
    with pytest.raises(BeirgridError, match=rf"{place} is damaged .* delete it and run the grid again"):
        site.run("bm25-query2doc")


def test_texts_of_another_checkpoint_are_not_taken(folder, tiny_models):
    for step in (1.0, 1.5):
        shutil.rmtree("results/models/writer", ignore_errors=True)
        save_changed(folder / f"writer{step}", tiny_models["query-generator"], partial(_scale, step))
        site = Site({**tiny_models, "query-generator": folder / f"writer{step}"}, _generated())
        Path(jobs_record(site, "bm25-query2doc")).unlink(missing_ok=True)
        site.run("bm25-query2doc")
        (folder / f"{step}.json").write_text(json.dumps(site.texts("bm25-query2doc")))
    assert (folder / "1.0.json").read_text() != (folder / "1.5.json").read_text()


def _scale(step: float, weights: dict[str, Any]) -> None:
    for weight in weights.values():
        weight *= step


def test_two_jobs_write_the_same_texts_at_once(folder, tiny_models):
    """Each takes some of the other's, or writes them itself: both datasets have the queries."""
    site = Site(tiny_models, _generated())
    writing = []
    for dataset in ("one", "again"):
        for job in jobs_behind(site.grid, artifacts.run(site.grid, "bm25-hyde", dataset)):
            if job.rule == "rewrite":
                outputs = {"rewrites": job.record.replace(".json", ".parquet"), "record": job.record}
                writing.append(site.rules.as_json(job, site.rules.inputs(job), outputs, threads=1, mem_mb=0))
            elif job.rule.startswith("fetch") and not Path(job.record).is_file():
                site.rules.run(job)
    command = [python(), "-m", "beirgrid", "stage", "rewrite"]
    jobs = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in writing]
    for job, text in zip(jobs, writing, strict=True):
        assert job.stdin
        job.stdin.write(text)
        job.stdin.close()
    assert [job.wait() for job in jobs] == [0, 0]
    texts = site.texts("bm25-hyde")
    assert texts == site.texts("bm25-hyde", "again")
    assert len([*Path("results/rewrites").glob("*/texts/*/*")]) == len(texts)


def test_rm3_reads_the_words_of_published_expansions(folder, tiny_models):
    """The run is that of the same RM3 over documents that have these words in their texts."""
    lines = [json.loads(line) for line in (folder / "data/corpus.jsonl").read_text().splitlines()]
    predicted = {line["_id"]: f"{lines[-1 - number]['text']} only{number % 7}" for number, line in enumerate(lines)}
    rows = [json.dumps({"id": name, "queries": [text]}) for name, text in predicted.items()]
    (folder / "expansions.jsonl").write_text("\n".join(rows))
    published = {"source": "local", "path": "expansions.jsonl"}
    system = {"retriever": "bm25", "fields": "flat", "rm3": {"documents": 3, "terms": 5}}
    found = Site(tiny_models, {"x": {**system, "expansion": published}}).run("x")
    shutil.rmtree("results")
    without = Site(tiny_models, {"x": system}).run("x")
    shutil.rmtree("results")
    whole = [json.dumps({**line, "text": f"{line['text']} {predicted[line['_id']]}"}) for line in lines]
    (folder / "data/corpus.jsonl").write_text("\n".join(whole))
    expected = Site(tiny_models, {"x": system}).run("x")
    for of_system in (found, expected):
        del of_system["d3"]  # the text of this query is no longer that of the document d3, which is ranked then
    _assert_alike(found, expected, 0)
    assert any(found[query].ids != without[query].ids for query in found)


def test_a_model_that_writes_nothing_at_all_is_refused(folder, tiny_models, monkeypatch):
    site = Site(tiny_models, _generated())
    monkeypatch.setattr(GeneratorModel, "generate", lambda self, texts, **keys: [[" "] for _ in texts])
    with pytest.raises(BeirgridError, match=r"writes nothing for any query of results/datasets/one/queries\.parquet"):
        site.run("bm25-query2doc")
    assert not Path(jobs_record(site, "bm25-query2doc")).exists()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_decoder_writes_the_same_texts_for_a_query_alone(folder, tiny_models, temperature):
    chat = save_chat(folder / "chat")
    entry = {"family": "chat", "temperature": temperature, "tokens": 8}
    query = {"method": "own", "prompt": "Say it anew: {query}", "generator": "chat", "texts": 2}
    systems = {"bm25": SYSTEMS["bm25"], "bm25-own": {"first_stage": "bm25", "query": query}}
    site = Site(tiny_models, systems, chat={**entry, "path": str(chat)})
    run = site.run("bm25-own")
    queries = read_queries(paths.QUERIES.format(dataset="one"))
    for name, text in [*queries.items()][::-1][:3]:
        [texts] = opened("chat", chat, entry).generate([f"Say it anew: {text}"], per_text=2, seed=0)
        assert site.texts("bm25-own")[name] == [text.strip() for text in texts]
        assert (texts[0] == texts[1]) == (temperature == 0)
    read = {name: " ".join(site.texts("bm25-own")[name]) for name in queries}
    _assert_alike(run, _by_words(read), 0)


def _passage(messages: list[dict[str, str]]) -> str:
    """What the server of the tests writes: nothing for one of the queries."""
    content = messages[-1]["content"]
    if "Question" not in content:  # the probe
        return "1"
    return "" if "zzzz" in content else f"A passage on {content.split(': ')[1].split(chr(10))[0]}"


def _served(url: str, **more: Any) -> dict[str, Any]:
    price = {"input": 1.0, "output": 2.0}
    endpoint = {"model": "m", "url": url, "key": "TESTED_KEY", "price": price, "body": {"max_tokens": 50}, **more}
    return {"family": "chat", "endpoint": endpoint}


def test_a_server_is_asked_once_for_each_text(folder, tiny_models, served, caplog):
    served.chat = _passage
    query = {"method": "hyde", "generator": "chat", "texts": 2}
    systems = {first: SYSTEMS[first] for first in ("bm25", "tiny")}
    systems |= {f"{first}-hyde": {"first_stage": first, "query": query} for first in ("bm25", "tiny")}
    site = Site(tiny_models, systems, chat=_served(served.url))
    site.run("bm25-hyde")
    written = [body for path, body in served.asked if "seed" in body]
    assert len(written) == 2 * 11
    assert {(body["temperature"], body["seed"]) for body in written} == {(0.7, 0), (0.7, 1)}
    assert "writes nothing for 1 of the 11 queries" in caplog.text
    queries = read_queries(paths.QUERIES.format(dataset="one"))
    texts = site.texts("bm25-hyde")
    assert texts == {name: [f"A passage on {text}"] * 2 for name, text in queries.items() if name != "nohit"} | {
        "nohit": []
    }
    record = json.loads(Path(jobs_record(site, "bm25-hyde")).read_text())
    assert record["facts"]["requests"] == 22
    assert record["facts"]["queries_without_texts"] == 1
    assert record["facts"]["price"] > 0
    before = len(served.asked)
    site.run("tiny-hyde")  # another retriever over the same texts
    assert len(served.asked) == before
    Path(jobs_record(site, "bm25-hyde")).unlink()
    site.run("bm25-hyde")  # texts that are made again come from the kept answers
    site.run("bm25-hyde", "again")  # and so do those of another dataset with these queries
    assert not [body for _, body in served.asked[before:] if "seed" in body]
    assert site.texts("bm25-hyde") == texts
    read = {name: " ".join([text, *texts[name]]) for name, text in queries.items()}
    _assert_alike(site.run("bm25-hyde"), _by_words(read), 0)
    before = len(served.asked)
    with pytest.raises(open_systems.NotSearchable, match=r"your query and the key .* would go to the server .*: allow"):
        open_systems.open_system("bm25-hyde", "one", "cpu")
    assert len(served.asked) == before
    text = f"{queries['q2']} {queries['q1']}"  # nobody has asked this
    ranked = open_systems.open_system("bm25-hyde", "one", "cpu", ask_endpoint=True).rank({"new": text})
    assert {body["seed"] for _, body in served.asked[before:] if "seed" in body} == {0, 1}
    _assert_alike(ranked, _by_words({"new": f"{text} A passage on {text} A passage on {text}"}), 0)


def jobs_record(site: Site, system: str, dataset: str = "one") -> str:
    """Return the record of the texts of a system."""
    name = site.grid.rewriting(system).name
    return paths.REWRITES_RECORD.format(rewriting=name, dataset=dataset)


def test_a_spent_budget_stops_before_it_is_exceeded_and_loses_nothing(folder, tiny_models, served):
    served.chat = _passage
    systems = {"bm25": SYSTEMS["bm25"], "bm25-hyde": {"first_stage": "bm25", "query": {"method": "hyde"}}}
    systems["bm25-hyde"]["query"] |= {"generator": "chat", "texts": 1}
    site = Site(tiny_models, systems, chat=_served(served.url, budget=0.001, concurrency=1))
    with pytest.raises(BeirgridError, match=r"of the budget of 0\.001 are spent"):
        site.run("bm25-hyde")
    answered = [body for _, body in served.asked if "seed" in body]
    assert answered
    richer = Site(tiny_models, systems, chat=_served(served.url, budget=1.0))
    richer.run("bm25-hyde")
    asked = [json.dumps(body) for _, body in served.asked if "seed" in body]
    assert len(asked) == len(set(asked)) == 11


def test_a_grid_shows_what_became_of_its_queries(folder, monkeypatch, capsys):
    system = {"first_stage": "bm25-flat", "query": {"method": "query2doc", "file": "{dataset}.jsonl"}}
    grid = {
        "corpora": {"one": {"source": "local", "path": "data"}},
        "datasets": {"one": {"corpus": "one"}},
        "systems": {"bm25-flat": {"retriever": "bm25", "fields": "flat"}, "bm25-theirs": system},
        "grid": {"systems": ["bm25-flat", "bm25-theirs"], "datasets": ["one"]},
    }
    configfile = folder / "grid.yaml"
    configfile.write_text(json.dumps(grid))
    assert "rewrite" in finish(configfile, folder)
    assert main(["show", "bm25-theirs", "one", "q0"]) == 0
    shown = capsys.readouterr().out.splitlines()
    queries = read_queries(paths.QUERIES.format(dataset="one"))
    assert shown[:2] == [f"query q0: {queries['q0']}", f"query2doc: {next(_lines(queries))['text']}"]
    assert main(["show", "bm25-flat", "one", "q0"]) == 0
    assert "query2doc" not in capsys.readouterr().out
    page = Path("results/grids/grid/report/index.html").read_text()
    assert "lexical, queries: query2doc by {dataset}.jsonl" in page
    assert job_counts(run(configfile, folder, "--dry-run")) == {}
    (folder / "one.jsonl").write_text((folder / "one.jsonl").read_text().replace("passage", "text"))
    again = job_counts(run(configfile, folder, "--dry-run"))
    assert again["rewrite"] == again["retrieve_lexical"] == 1
    assert "index_lexical" not in again
    assert main(["search", "bm25-theirs", "one", "a"]) == 1
    told = "'bm25-theirs' cannot be searched: its texts for results/datasets/one/queries.parquet are those of the file"
    assert f"{told} one.jsonl, which has none for a new query" in capsys.readouterr().err
