"""Stage retrieve: find the top documents per query with Lucene, dense vectors, impact postings or token vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from ..collections import collection
from ..config.indexes import AnyIndex, Flat
from ..config.models import DenseModel, LateInteractionModel, Model, ModelEntry
from ..config.values import Size
from ..core import lineage, provenance
from ..core.compute import Compute
from ..core.errors import DataError, quoted
from ..core.progress import Progress
from ..core.provenance import Artifact, Record
from ..encoders import CollapseCheck, check_finite, open_encoder
from ..models.endpoints import kept_answers
from ..pipeline.retrieve import RETRIEVE
from ..runs import runs
from ..runs.limits import Limits
from ..search import Found, approximate, find, flat, lucene, maxsim

System = Annotated[str, "name of the system, used as the tag of the run"]
Queries = Annotated[Artifact, "queries.parquet"]
Indexes = Annotated[list[Artifact], "indexes of the corpus's shards, in row order"]
Depth = Annotated[Size, "documents per query"]
Output = Annotated[Path, "run to write, .run.gz"]
# Where queries have candidates, each search finds all documents: pairs of both at a time, and queries with BM25.
_PAIRS, _WITH_CANDIDATES = 4_000_000, 64
# More hits than Lucene can find.
_EVERY = 2**31 - 1
_ENTRY = "registry entry of the model, JSON"
# Maps query vectors and a depth to the scores and rows of documents.
Search = Callable[[Any, int], Found]


@dataclass(frozen=True)
class Asked:
    """Options of every search with a model, besides the model and the indexes."""

    system: System
    checkpoint: Annotated[Artifact, "folder of the model's checkpoint"]
    corpus: Annotated[Artifact, "corpus.parquet, for the document ids"]
    queries: Queries
    output: Output
    record: Record
    two_towers: Annotated[bool, "the checkpoint is a separate query encoder"] = False
    depth: Depth = 1000

    @property
    def inputs(self) -> dict[str, Path | Sequence[Path]]:
        """The inputs of the command. A query tower is not the model of the documents."""
        checkpoint = "query_tower" if self.two_towers else "checkpoint"
        return {checkpoint: self.checkpoint, "corpus": self.corpus, "queries": self.queries}


def retrieve_lexical(
    *,
    system: System,
    index: Annotated[Artifact, "Lucene index"],
    queries: Queries,
    fields: Annotated[Literal["flat", "multifield"], "fields of the index"],
    language: Annotated[str, "ISO 639-1 code that picks the analyzer"] = "en",
    k1: Annotated[float, "saturation of term frequencies"] = 0.9,
    b: Annotated[float, "normalisation by document length"] = 0.4,
    depth: Depth = 1000,
    threads: Annotated[Size, "threads of Lucene"] = 1,
    memory: Annotated[Size, "Java heap in MB"] = 1500,
    output: Output,
    record: Record,
) -> None:
    """Search a corpus with BM25.

    Raises:
        DataError: queries or index are damaged.
        BeirgridError: Java or Lucene fails.
    """
    settings = {"fields": fields, "language": language, "k1": k1, "b": b, "depth": depth}
    origin = lineage.check({"lucene": index, "queries": queries}, asked={"fields": fields, "language": language})
    with provenance.record(RETRIEVE, record, settings, [output], origin=origin) as facts:
        texts, limits = collection.read_queries(queries), Limits(queries, depth)
        bm25: dict[str, Any] = {"fields": fields, "language": language, "k1": k1, "b": b}
        run: runs.Run = {}
        started = time.monotonic()
        for start, stop in limits.blocks(len(texts), _WITH_CANDIDATES):
            block = dict(islice(texts.items(), start, stop))
            deep = limits.searched(_EVERY)
            hits = lucene.search(index, block, **bm25, depth=deep, threads=threads, memory_mb=memory)
            run |= {query: limits.ranking(query, *found) for query, found in hits.items()}
        facts["search_seconds"] = round(time.monotonic() - started, 3)
        runs.write(output, run, system)
        facts.update(_counts(run, len(texts)), device="cpu")


def retrieve_vectors(
    *,
    asked: Asked,
    model: Model,
    indexes: Indexes,
    compute: Compute,
) -> None:
    """Encode the queries with a model and search the indexes of all shards exactly.

    Raises:
        DataError: an input is damaged, or an index has another dimension (or vocabulary) than the queries' vectors.
    """
    settings = {**model.own_keys(), "depth": asked.depth}

    def search(vectors: Any, depth: int) -> Found:
        return find(model.family, indexes, vectors, depth, compute)

    origin = lineage.check(asked.inputs | {"indexes": indexes})
    with provenance.record(RETRIEVE, asked.record, settings, [asked.output], origin=origin) as facts:
        facts |= _retrieve(asked, model, compute, search)


def retrieve_dense(
    *,
    asked: Asked,
    model: Annotated[DenseModel, _ENTRY],
    indexes: Indexes,
    index: Annotated[AnyIndex | None, "kind of the indexes, unless flat, JSON"] = None,
    dimensions: Annotated[Size | None, "number of dimensions in the indexes"] = None,
    exact: Annotated[
        tuple[Artifact, ...],
        "exact indexes of the shards: the record then has the recall of the exact results by depth",
    ] = (),
    compute: Compute,
) -> None:
    """Encode the queries with a dense model and search all shards, exactly if the indexes are flat.

    Raises:
        DataError: an input is damaged, or an index has another dimension than the queries' vectors.
    """
    settings = {**model.own_keys(), "depth": asked.depth}
    if index:
        settings |= {"index": index.model_dump(mode="json"), "dimensions": dimensions}
    encoded, found = [], []

    def search(vectors: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        cut = approximate.truncate(vectors, dimensions, model.similarity)
        with compute.start() as runtime:
            kind = index or Flat()
            scores, rows = approximate.search_shards(indexes, cut, depth, kind, runtime.device)
        encoded.append(vectors)
        found.append(rows)
        return scores, rows

    inputs = asked.inputs | {"indexes": indexes, "exact_indexes": exact}
    built = index.built() if index else None
    wanted: dict[str, Any] = {"similarity": model.similarity, "index": built, "dimensions": dimensions}
    if not asked.two_towers:
        wanted["chunks"] = model.chunks.name if model.chunks else None
    origin = lineage.check(inputs, wanted)
    with (
        kept_answers(asked.output) as answers,
        provenance.record(RETRIEVE, asked.record, settings, [asked.output], origin=origin) as facts,
    ):
        facts |= _retrieve(asked, model, compute, search, answers)
        if exact:
            _, best = flat.find(exact, np.concatenate(encoded), found[0].shape[1], compute)
            depths = (10, 100, asked.depth)
            facts["recall_of_exact"] = approximate.recalls(np.concatenate(found), best[:, : asked.depth], depths)


def retrieve_late_interaction(
    *,
    asked: Asked,
    model: Annotated[LateInteractionModel, _ENTRY],
    tokens: Annotated[list[Artifact], "token vectors of the corpus's shards, in row order"],
    indexes: Annotated[
        tuple[Artifact, ...], "index of each shard, for candidate generation; none for an exhaustive search"
    ] = (),
    candidates: Annotated[Size | None, "nearest tokens per query token; without it, every document is scored"] = None,
    compute: Compute,
) -> None:
    """Encode the queries with a late-interaction model and score documents by MaxSim over their tokens.

    Raises:
        DataError: an input is damaged, or shards, indexes and query vectors do not match.
    """
    if candidates is not None and len(indexes) != len(tokens):
        raise DataError(f"--indexes names {len(indexes)} indexes, --tokens {len(tokens)} shards: give one for each")
    how = {"candidates": candidates} if candidates else {"exhaustive": True}
    settings = {**model.own_keys(), **how, "depth": asked.depth}
    origin = lineage.check(asked.inputs | {"tokens": tokens, "indexes": indexes})
    with provenance.record(RETRIEVE, asked.record, settings, [asked.output], origin=origin) as facts:
        every = candidates is None or bool(collection.read_candidates(asked.queries))

        def search(vectors: maxsim.TokenVectors, depth: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
            steps = len(vectors.counts) * len(tokens)
            progress = Progress(f"retrieve from {len(tokens)} shards", steps, "searches")
            if candidates is None or every:
                return maxsim.search_exhaustively(tokens, vectors, depth, progress)
            scores, rows = maxsim.search(tokens, indexes, vectors, candidates, progress)
            facts["candidates_per_query"] = round(float(np.mean([len(row) for row in rows])), 1)
            return scores, rows

        facts |= _retrieve(asked, model, compute, search)


def _retrieve(
    asked: Asked, model: ModelEntry, compute: Compute, search: Search, answers: Path | None = None
) -> dict[str, Any]:
    """Encode the queries, search, write the canonical run, and return facts for the record."""
    texts, limits = collection.read_queries(asked.queries), Limits(asked.queries, asked.depth)
    documents = collection.count(asked.corpus)
    with compute.start() as runtime:
        encoder = open_encoder(asked.checkpoint, model, runtime, answers)
        vectors = encoder.encode_queries(list(texts.values()))
        checked = vectors.sums() if isinstance(vectors, maxsim.TokenVectors) else vectors
        check_finite(checked, [f"query {quoted(query)}" for query in texts], encoder.precision)
        collapse = CollapseCheck(encoder.precision)
        collapse.add(checked, list(texts.values()))
        collapse.check("all queries")
        facts: dict[str, Any] = dict(encoder.facts())
    run: runs.Run = {}
    seconds = 0.0
    for start, stop in limits.blocks(len(texts), max(1, _PAIRS // documents)):
        started = time.monotonic()
        block = vectors.texts(range(start, stop)) if isinstance(vectors, maxsim.TokenVectors) else vectors[start:stop]
        scores, rows = search(block, limits.searched(documents))
        seconds += time.monotonic() - started
        ids = collection.read_ids(asked.corpus, rows)
        for number, query in enumerate(list(texts)[start:stop]):
            found = rows[number] >= 0  # a row below 0 is none
            run[query] = limits.ranking(query, ids.take(rows[number][found]).to_pylist(), scores[number][found])
    facts["search_seconds"] = round(seconds, 3)
    runs.write(asked.output, run, asked.system)
    return facts | _counts(run, len(texts))


def _counts(run: runs.Run, queries: int) -> dict[str, int]:
    empty = queries - sum(bool(ranking.ids) for ranking in run.values())
    return {"queries": queries, "queries_without_documents": empty}
