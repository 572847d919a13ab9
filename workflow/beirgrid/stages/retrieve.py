"""Stage retrieve: the top documents per query, from Lucene, exact dense search, impact postings or token vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from ..collections import collection
from ..config.indexes import AnyIndex, Flat
from ..config.models import DenseModel, LateInteractionModel, ModelEntry
from ..core import lineage, provenance
from ..core.compute import Compute
from ..core.errors import DataError, quoted
from ..core.progress import Progress
from ..core.provenance import Artifact
from ..encoders import Variety, check_finite, open_encoder
from ..models.arguments import EncodingModel, SizeOption, from_json
from ..models.endpoints import kept_answers
from ..runs import runs
from ..search import Found, approximate, engine, flat, lucene, maxsim

System = Annotated[str, "name of the system, the tag of the run"]
Checkpoint = Annotated[Artifact, "folder of the model's checkpoint"]
TwoTowers = Annotated[bool, "queries have a model of their own: the checkpoint is not that of the documents"]
Corpus = Annotated[Artifact, "corpus.parquet, for the document ids"]
Queries = Annotated[Artifact, "queries.parquet"]
Indexes = Annotated[list[Artifact], "indexes of the corpus's shards, in row order"]
Depth = Annotated[SizeOption, "documents per query"]
Output = Annotated[Path, "run to write, .run.gz"]
Record = Annotated[Path, "record to write, .json"]
_ENTRY = "registry entry of the model, JSON"
# Vectors of queries and a depth to the scores and rows of documents.
Search = Callable[[Any, int], Found]


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
    threads: Annotated[SizeOption, "threads of Lucene"] = 1,
    memory: Annotated[SizeOption, "Java heap in MB"] = 1500,
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
    with provenance.record("retrieve", record, settings, [output], origin=origin) as facts:
        texts, excluded = collection.read_queries(queries), collection.read_excluded(queries)
        started = time.monotonic()
        hits = lucene.search(
            index,
            texts,
            fields=fields,
            language=language,
            k1=k1,
            b=b,
            depth=_searched(depth, excluded),
            threads=threads,
            memory_mb=memory,
        )
        facts["search_seconds"] = round(time.monotonic() - started, 3)
        run = {query: runs.canonical(query, *hits[query], depth, excluded.get(query, ())) for query in texts}
        runs.write(output, run, system)
        facts.update(_counts(run, len(texts)), device="cpu")


def retrieve_vectors(
    *,
    system: System,
    model: EncodingModel,
    checkpoint: Checkpoint,
    two_towers: TwoTowers = False,
    corpus: Corpus,
    indexes: Indexes,
    queries: Queries,
    depth: Depth = 1000,
    compute: Compute,
    output: Output,
    record: Record,
) -> None:
    """Encode the queries with a model and search the indexes of all shards exactly.

    Raises:
        DataError: an input is damaged, or an index has another dimension (or vocabulary) than the queries' vectors.
    """
    settings = {**model.given(), "depth": depth}

    def search(vectors: Any, depth: int) -> Found:
        return engine(model.family).find(indexes, vectors, depth, compute)

    inputs = _inputs(checkpoint, two_towers, corpus, queries) | {"indexes": indexes}
    origin = lineage.check(inputs)
    with provenance.record("retrieve", record, settings, [output], origin=origin) as facts:
        facts |= _retrieve(system, model, checkpoint, corpus, queries, depth, compute, output, search)


def retrieve_dense(
    *,
    system: System,
    model: Annotated[DenseModel, from_json(DenseModel), _ENTRY],
    checkpoint: Checkpoint,
    two_towers: TwoTowers = False,
    corpus: Corpus,
    indexes: Indexes,
    index: Annotated[AnyIndex | None, from_json(AnyIndex), "kind of the indexes if not flat, JSON"] = None,
    dimensions: Annotated[SizeOption | None, "first dimensions that the indexes keep"] = None,
    exact: Annotated[
        tuple[Artifact, ...],
        "exact indexes of the shards: the record has the share of the exact best documents that was found, by depth",
    ] = (),
    queries: Queries,
    depth: Depth = 1000,
    compute: Compute,
    output: Output,
    record: Record,
) -> None:
    """Encode the queries with a dense model and search all shards, exactly unless the indexes are of another kind.

    Raises:
        DataError: an input is damaged, or an index has another dimension than the queries' vectors.
    """
    settings = {**model.given(), "depth": depth}
    if index:
        settings |= {"index": index.model_dump(mode="json"), "dimensions": dimensions}
    asked, found = [], []

    def search(vectors: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        cut = approximate.truncate(vectors, dimensions, model.similarity)
        with compute.start() as runtime:
            kind = index or Flat()
            scores, rows = approximate.search_shards(indexes, cut, depth, kind, runtime.device, runtime.kernels)
        asked.append(vectors)
        found.append(rows)
        return scores, rows

    inputs = _inputs(checkpoint, two_towers, corpus, queries) | {"indexes": indexes, "exact_indexes": exact}
    built = index.built() if index else None
    origin = lineage.check(inputs, {"similarity": model.similarity, "index": built, "dimensions": dimensions})
    with (
        kept_answers(output) as answers,
        provenance.record("retrieve", record, settings, [output], origin=origin) as facts,
    ):
        facts |= _retrieve(system, model, checkpoint, corpus, queries, depth, compute, output, search, answers)
        if exact:
            _, best = flat.find(exact, asked[0], found[0].shape[1], compute)
            facts["recall_of_exact"] = approximate.recalls(found[0], best[:, :depth], (10, 100, depth))


def retrieve_late_interaction(
    *,
    system: System,
    model: Annotated[LateInteractionModel, from_json(LateInteractionModel), _ENTRY],
    checkpoint: Checkpoint,
    two_towers: TwoTowers = False,
    corpus: Corpus,
    tokens: Annotated[list[Artifact], "token vectors of the corpus's shards, in row order"],
    indexes: Annotated[
        tuple[Artifact, ...], "index of each shard, to find candidates in; an exhaustive search reads none"
    ] = (),
    candidates: Annotated[
        SizeOption | None, "nearest tokens per query token; without this option, every document is scored"
    ] = None,
    queries: Queries,
    depth: Depth = 1000,
    compute: Compute,
    output: Output,
    record: Record,
) -> None:
    """Encode the queries with a late-interaction model and score documents by MaxSim over their tokens.

    Raises:
        DataError: an input is damaged, or shards and indexes do not fit each other or the queries' vectors.
    """
    if candidates is not None and len(indexes) != len(tokens):
        raise DataError(f"--indexes names {len(indexes)} indexes, --tokens {len(tokens)} shards: give one for each")
    settings = {**model.given(), **({"candidates": candidates} if candidates else {"exhaustive": True}), "depth": depth}
    origin = lineage.check(_inputs(checkpoint, two_towers, corpus, queries) | {"tokens": tokens, "indexes": indexes})
    with provenance.record("retrieve", record, settings, [output], origin=origin) as facts:

        def search(vectors: maxsim.TokenVectors, depth: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
            steps = len(vectors.counts) * len(tokens)
            progress = Progress(f"retrieve from {len(tokens)} shards", steps, "searches")
            if candidates is None:
                return maxsim.search_exhaustively(tokens, vectors, depth, progress)
            scores, rows = maxsim.search(tokens, indexes, vectors, candidates, progress)
            facts["candidates_per_query"] = round(float(np.mean([len(row) for row in rows])), 1)
            return scores, rows

        facts |= _retrieve(system, model, checkpoint, corpus, queries, depth, compute, output, search)


def _inputs(checkpoint: Path, two_towers: bool, corpus: Path, queries: Path) -> dict[str, Path | Sequence[Path]]:
    """Return the inputs that all searches with a model have. A query tower is not the model of the documents."""
    return {"query_tower" if two_towers else "checkpoint": checkpoint, "corpus": corpus, "queries": queries}


def _retrieve(
    system: str,
    model: ModelEntry,
    checkpoint: Path,
    corpus: Path,
    queries: Path,
    depth: int,
    compute: Compute,
    output: Path,
    search: Search,
    answers: Path | None = None,
) -> dict[str, Any]:
    """Encode the queries, search, write the canonical run, and return facts for the record."""
    texts, excluded = collection.read_queries(queries), collection.read_excluded(queries)
    with compute.start() as runtime:
        encoder = open_encoder(checkpoint, model, runtime, answers)
        vectors = encoder.encode_queries(list(texts.values()))
        checked = vectors.sums() if isinstance(vectors, maxsim.TokenVectors) else vectors
        check_finite(checked, [f"query {quoted(query)}" for query in texts], encoder.precision)
        variety = Variety(encoder)
        variety.add(checked, list(texts.values()))
        variety.check("all queries")
        facts: dict[str, Any] = dict(encoder.facts())
    started = time.monotonic()
    scores, rows = search(vectors, _searched(depth, excluded))
    facts["search_seconds"] = round(time.monotonic() - started, 3)
    run = dict(_rankings(texts, excluded, collection.read_ids(corpus, rows), scores, rows, depth))
    runs.write(output, run, system)
    return facts | _counts(run, len(texts))


def _searched(depth: int, excluded: dict[str, set[str]]) -> int:
    """Return how many documents to search for: all excluded documents may be among the best."""
    return depth + max(map(len, excluded.values()), default=0)


def _counts(run: runs.Run, queries: int) -> dict[str, int]:
    empty = queries - sum(bool(ranking.ids) for ranking in run.values())
    return {"queries": queries, "queries_without_documents": empty}


def _rankings(
    queries: dict[str, str],
    excluded: dict[str, set[str]],
    ids: collection.Ids,
    scores: Sequence[np.ndarray] | np.ndarray,
    rows: Sequence[np.ndarray] | np.ndarray,
    depth: int,
) -> Iterator[tuple[str, runs.Ranking]]:
    """Yield each query with its canonical ranking; rows below 0 are none."""
    for number, query in enumerate(queries):
        found = rows[number] >= 0
        documents = ids.take(rows[number][found]).to_pylist()
        yield query, runs.canonical(query, documents, scores[number][found], depth, excluded.get(query, ()))
