"""Tuned weights of a fusion: chosen on the queries of a dev split, never on the queries that the fusion answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tracked_configuration, write_collection

from beirgrid import config
from beirgrid.config.datasets import Dataset, LocalCorpus
from beirgrid.core import files
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.runs import fusion, metrics, runs
from beirgrid.stages import fetch, fuse

TUNED = {"fusion": "wsum", "of": ["bm25", "minilm"], "weights": "tuned"}
NFCORPUS = tracked_configuration()["datasets"]["nfcorpus"]


def load(*datasets, system=None, **entries):
    found = tracked_configuration()
    found["systems"]["tuned"] = {**TUNED, **(system or {})}
    found["grid"] = {"systems": ["tuned"], "datasets": list(datasets)}
    found["datasets"] |= entries
    return config.load(found)


@pytest.mark.parametrize(
    ("dataset", "system", "entries", "message"),
    [
        ("scifact", {}, {}, r"systems.tuned.weights: tuned needs other queries .* datasets.scifact names none \(dev\)"),
        ("nfcorpus", {"of": ["bm25"] * 5}, {}, "weights of at most 4 systems are tuned, not of 5"),
        (
            "nfcorpus",
            {},
            {"nfcorpus": {**NFCORPUS, "dev": "fiqa-dev"}},
            "has another corpus",
        ),
        (
            "nfcorpus",
            {},
            {"nfcorpus": {**NFCORPUS, "dev": "nfcorpus"}},
            "has the same queries",
        ),
        ("nfcorpus", {}, {"nfcorpus": {**NFCORPUS, "dev": "nfcorpus-div"}}, "did you mean 'nfcorpus-dev'"),
        ("nfcorpus", {"weights": "tunde"}, {}, "systems.tuned.weights"),
    ],
)
def test_a_grid_without_a_dev_split_is_refused(dataset, system, entries, message):
    assert load("nfcorpus", "demo").grid.systems == ("tuned",)
    with pytest.raises(ConfigError, match=message):
        load(dataset, system=system, **entries)


def drawn(count: int, seed: int) -> tuple[list[runs.Run], dict[str, dict[str, int]]]:
    """Return runs, the first of which finds more, and qrels."""
    random = np.random.default_rng(seed)
    parts: list[runs.Run] = [{} for _ in range(count)]
    qrels = {}
    for number in range(30):
        ids = [f"d{one}" for one in range(40)]
        qrels[f"q{number}"] = dict.fromkeys(random.choice(ids, 5, replace=False).tolist(), 1)
        for place, part in enumerate(parts):
            scores = random.random(40) + [(one in qrels[f"q{number}"]) * (0.6 - place * 0.2) for one in ids]
            part[f"q{number}"] = runs.canonical(f"q{number}", ids, scores, 30)
    return parts, qrels


@pytest.mark.parametrize(("count", "tried"), [(2, 21), (3, 66)])
def test_tuned_weights_are_the_best_of_all_that_are_tried(count, tried):
    parts, qrels = drawn(count, seed=count)
    found = fusion.tune(parts, qrels, "ndcg@10", "min-max", 100)
    assert (found.queries, found.tried) == (30, tried)
    assert sum(found.weights) == pytest.approx(1)

    def value(weights):
        run = fusion.fuse(parts, "wsum", 100, norm="min-max", weights=weights)
        return float(np.mean(metrics.per_query(run, qrels, ["ndcg@10"])["ndcg@10"]))

    assert value(found.weights) == pytest.approx(found.value, abs=1e-12)
    shares = np.random.default_rng(0).multinomial(20 if count == 2 else 10, [1 / count] * count, 40)
    assert all(value(list(one / one.sum())) <= found.value + 1e-12 for one in shares)
    assert value([1 / count] * count) < found.value


@pytest.fixture
def collections(tmp_path) -> Path:
    """Queries and qrels of two splits, and the runs of two systems on both."""
    texts = [
        {"_id": f"{split}{number}", "text": f"{split} {number}"} for split in ("test", "dev") for number in range(30)
    ]
    parts, qrels = drawn(2, seed=5)
    judged = {
        split: [(query.replace("q", split), one, 1) for query, of in qrels.items() for one in of]
        for split in ("test", "dev")
    }
    documents = [{"_id": f"d{one}", "text": f"document {one}"} for one in range(40)]
    entry = LocalCorpus(source="local", path=str(write_collection(tmp_path / "data", documents, texts, judged)))
    fetch.fetch_corpus(name="c", entry=entry, output=tmp_path / "c.parquet", record=tmp_path / "c.json")
    for split in ("test", "dev"):
        made = {"queries": tmp_path / f"{split}.parquet", "qrels": tmp_path / f"{split}.tsv"}
        known = {"corpus_entry": entry, "corpus": tmp_path / "c.parquet", "record": tmp_path / f"{split}.json"}
        fetch.fetch_dataset(name=split, entry=Dataset(corpus="c", split=split), **known, **made)
        for number, part in enumerate(parts):
            renamed = {query.replace("q", split): ranking for query, ranking in part.items()}
            runs.write(tmp_path / f"{split}{number}.run.gz", renamed, "s")
    return tmp_path


def fused(folder: Path, **options) -> dict:
    asked = {
        "runs": [folder / f"test{number}.run.gz" for number in range(2)],
        "dev_runs": tuple(folder / f"dev{number}.run.gz" for number in range(2)),
        "dev_qrels": (folder / "dev.tsv",),
        "queries": (folder / "test.parquet", folder / "dev.parquet"),
        "output": folder / "fused.run.gz",
        "record": folder / "fused.json",
    }
    fuse.fuse(system="s", method="wsum", tune="ndcg@10", **{**asked, **options})
    return files.read_json(folder / "fused.json")


def test_the_record_has_the_weights_and_what_they_were_tuned_for(collections):
    record = fused(collections)
    parts = [runs.read(collections / f"dev{number}.run.gz") for number in range(2)]
    qrels = {query: dict.fromkeys(of, 1) for query, of in drawn(2, seed=5)[1].items()}
    expected = fusion.tune(
        parts, {query.replace("q", "dev"): of for query, of in qrels.items()}, "ndcg@10", "min-max", 1000
    )
    assert record["facts"]["weights"] == expected.weights
    assert record["facts"]["tuned"] == {"metric": "ndcg@10", "value": expected.value, "queries": 30, "tried": 21}
    assert record["settings"] == {"method": "wsum", "norm": "min-max", "tune": "ndcg@10"}
    again = fusion.fuse(
        [runs.read(collections / f"test{number}.run.gz") for number in range(2)], "wsum", 1000, weights=expected.weights
    )
    found = runs.read(collections / "fused.run.gz")
    assert {query: ranking.ids for query, ranking in found.items()} == {q: ranking.ids for q, ranking in again.items()}


def test_weights_are_never_tuned_on_queries_that_are_answered(collections):
    with pytest.raises(DataError, match=r"30 queries of .*test.parquet are queries of .*must not be tuned on queries"):
        fused(collections, queries=(collections / "test.parquet", collections / "test.parquet"))
