"""Stage retrieve: find the top documents per query with Lucene, dense vectors, impact postings or token vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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

System = Annotated[str, "name of the system, used as the tag of the run"]
Queries = Annotated[Artifact, "queries.parquet"]
Indexes = Annotated[list[Artifact], "indexes of the corpus's shards, in row order"]
Depth = Annotated[SizeOption, "documents per query"]
Output = Annotated[Path, "run to write, .run.gz"]
Record = Annotated[Path, "record to write, .json"]
_ENTRY = "registry entry of the model, JSON"
# Maps query vectors and a depth to the scores and rows of documents.
Search = Callable[[Any, int], Found]


@dataclass(frozen=True)
class Asked:
    """What every search with a model takes beside the model and the indexes."""

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
    asked: Asked,
    model: EncodingModel,
    indexes: Indexes,
    compute: Compute,
) -> None:
    """Encode the queries with a model and search the indexes of all shards exactly.

    Raises:
        DataError: an input is damaged, or an index has another dimension (or vocabulary) than the queries' vectors.
    """
    settings = {**model.given(), "depth": asked.depth}

    def search(vectors: Any, depth: int) -> Found:
        return engine(model.family).find(indexes, vectors, depth, compute)

    origin = lineage.check(asked.inputs | {"indexes": indexes})
    with provenance.record("retrieve", asked.record, settings, [asked.output], origin=origin) as facts:
        facts |= _retrieve(asked, model, compute, search)


def retrieve_dense(
    *,
    asked: Asked,
    model: Annotated[DenseModel, from_json(DenseModel), _ENTRY],
    indexes: Indexes,
    index: Annotated[AnyIndex | None, from_json(AnyIndex), "kind of the indexes, unless flat, JSON"] = None,
    dimensions: Annotated[SizeOption | None, "number of dimensions in the indexes"] = None,
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
    settings = {**model.given(), "depth": asked.depth}
    if index:
        settings |= {"index": index.model_dump(mode="json"), "dimensions": dimensions}
    encoded, found = [], []

    def search(vectors: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        cut = approximate.truncate(vectors, dimensions, model.similarity)
        with compute.start() as runtime:
            kind = index or Flat()
            scores, rows = approximate.search_shards(indexes, cut, depth, kind, runtime.device, runtime.kernels)
        encoded.append(vectors)
        found.append(rows)
        return scores, rows

    inputs = asked.inputs | {"indexes": indexes, "exact_indexes": exact}
    built = index.built() if index else None
    origin = lineage.check(inputs, {"similarity": model.similarity, "index": built, "dimensions": dimensions})
    with (
        kept_answers(asked.output) as answers,
        provenance.record("retrieve", asked.record, settings, [asked.output], origin=origin) as facts,
    ):
        facts |= _retrieve(asked, model, compute, search, answers)
        if exact:
            _, best = flat.find(exact, encoded[0], found[0].shape[1], compute)
            depths = (10, 100, asked.depth)
            facts["recall_of_exact"] = approximate.recalls(found[0], best[:, : asked.depth], depths)


def retrieve_late_interaction(
    *,
    asked: Asked,
    model: Annotated[LateInteractionModel, from_json(LateInteractionModel), _ENTRY],
    tokens: Annotated[list[Artifact], "token vectors of the corpus's shards, in row order"],
    indexes: Annotated[
        tuple[Artifact, ...], "index of each shard, for candidate generation; none for an exhaustive search"
    ] = (),
    candidates: Annotated[
        SizeOption | None, "nearest tokens per query token; without it, every document is scored"
    ] = None,
    compute: Compute,
) -> None:
    """Encode the queries with a late-interaction model and score documents by MaxSim over their tokens.

    Raises:
        DataError: an input is damaged, or shards, indexes and query vectors do not match.
    """
    if candidates is not None and len(indexes) != len(tokens):
        raise DataError(f"--indexes names {len(indexes)} indexes, --tokens {len(tokens)} shards: give one for each")
    how = {"candidates": candidates} if candidates else {"exhaustive": True}
    settings = {**model.given(), **how, "depth": asked.depth}
    origin = lineage.check(asked.inputs | {"tokens": tokens, "indexes": indexes})
    with provenance.record("retrieve", asked.record, settings, [asked.output], origin=origin) as facts:

        def search(vectors: maxsim.TokenVectors, depth: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
            steps = len(vectors.counts) * len(tokens)
            progress = Progress(f"retrieve from {len(tokens)} shards", steps, "searches")
            if candidates is None:
                return maxsim.search_exhaustively(tokens, vectors, depth, progress)
            scores, rows = maxsim.search(tokens, indexes, vectors, candidates, progress)
            facts["candidates_per_query"] = round(float(np.mean([len(row) for row in rows])), 1)
            return scores, rows

        facts |= _retrieve(asked, model, compute, search)


def _retrieve(
    asked: Asked, model: ModelEntry, compute: Compute, search: Search, answers: Path | None = None
) -> dict[str, Any]:
    """Encode the queries, search, and write the canonical run; return facts for the record."""
    texts, excluded = collection.read_queries(asked.queries), collection.read_excluded(asked.queries)
    with compute.start() as runtime:
        encoder = open_encoder(asked.checkpoint, model, runtime, answers)
        vectors = encoder.encode_queries(list(texts.values()))
        checked = vectors.sums() if isinstance(vectors, maxsim.TokenVectors) else vectors
        check_finite(checked, [f"query {quoted(query)}" for query in texts], encoder.precision)
        variety = Variety(encoder)
        variety.add(checked, list(texts.values()))
        variety.check("all queries")
        facts: dict[str, Any] = dict(encoder.facts())
    started = time.monotonic()
    scores, rows = search(vectors, _searched(asked.depth, excluded))
    facts["search_seconds"] = round(time.monotonic() - started, 3)
    run = dict(_rankings(texts, excluded, collection.read_ids(asked.corpus, rows), scores, rows, asked.depth))
    runs.write(asked.output, run, asked.system)
    return facts | _counts(run, len(texts))


def _searched(depth: int, excluded: dict[str, set[str]]) -> int:
    """Return the depth of the search: all excluded documents may be among the best."""
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
    """Yield each query with its canonical ranking; negative rows mean no document."""
    for number, query in enumerate(queries):
        found = rows[number] >= 0
        documents = ids.take(rows[number][found]).to_pylist()
        yield query, runs.canonical(query, documents, scores[number][found], depth, excluded.get(query, ()))
