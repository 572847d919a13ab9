"""Stage feedback: search again with queries that the first documents of a dense run have moved."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from ...collections import collection
from ...config.models import DenseModel
from ...config.query_changes import Moves
from ...config.values import Size
from ...core.compute import Compute
from ...core.provenance import Artifact, Facts
from ...encoders import open_encoder, query_checkpoint
from ...encoders.protocol import Encoder
from ...models.endpoints import kept_answers
from ...runs import runs
from ...runs.opened import OpenPart, OpenSystem
from ...runs.restrictions import Found, Restrictions
from ...search import flat


class _Search(NamedTuple):
    """Searches the exact indexes of a corpus with queries that documents of a run have moved."""

    encoder: Encoder[np.ndarray]
    corpus: Path
    indexes: Sequence[Path]
    moves: Moves
    limits: Restrictions
    compute: Compute

    def run(self, texts: Mapping[str, str], first: runs.Run, rows: Mapping[str, int]) -> runs.Run:
        """Return the run of queries, texts by id. ``rows`` has the corpus rows of the documents that move them."""
        vectors = self.encoder.encode_queries([*texts.values()])
        sides = [side for query in texts for side in self.moves.sides(first[query].ids)]
        places = np.array([rows[name] for side in sides for name in side], np.int64)
        ends = np.cumsum([*map(len, sides)])
        found = iter(np.split(flat.vectors_of(self.indexes, places), ends[:-1]))
        for number, vector in enumerate(vectors):
            vectors[number] = _moved(vector, next(found), next(found), self.moves)

        def find(start: int, stop: int, deep: int) -> Found:
            return flat.find(self.indexes, vectors[start:stop], deep, self.compute)

        documents = collection.count(self.corpus)
        return self.limits.run([*texts], documents, find, lambda ids: collection.read_ids(self.corpus, ids))


def feedback(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    model: DenseModel,
    checkpoint: Annotated[Artifact | None, "folder of the model's checkpoint"] = None,
    query_tower: Annotated[Artifact | None, "folder of its query encoder's checkpoint, if that is another one"] = None,
    dense_run: Annotated[Artifact, "run of the model, whose documents move the queries"],
    corpus: Annotated[Artifact, "corpus.parquet, for the document ids"],
    queries: Annotated[Artifact, "queries.parquet"],
    indexes: Annotated[tuple[Artifact, ...], "exact index of each shard, in order"],
    moves: Annotated[Moves, "how documents move a query"],
    depth: Annotated[Size, "documents per query"] = 1000,
    compute: Compute,
    output: Annotated[Path, "run to write, .run.gz"],
) -> Facts:
    """Search again, exactly, with queries that the first documents of a run have moved.

    Raises:
        DataError: an input is damaged, or the corpus lacks a document of the run.
    """
    texts = collection.read_queries(queries)
    found = runs.read(dense_run)
    first = {query: found.get(query, runs.EMPTY) for query in texts}
    used = [name for ranking in first.values() for side in moves.sides(ranking.ids) for name in side]
    rows = collection.read_rows(corpus, {*used})
    collection.refuse_unknown(corpus, "document", used, rows)
    with kept_answers(output) as answers:
        encoder = open_encoder(query_checkpoint(checkpoint, query_tower), model, compute.start(), answers)
        started = time.monotonic()  # the model is open
        search = _Search(encoder, corpus, indexes, moves, Restrictions(queries, depth), compute)
        run = search.run(texts, first, rows)
        seconds = round(time.monotonic() - started, 3)
        runs.write(output, run, system)
    return {"query_seconds": seconds, **encoder.facts(), "queries": len(texts)}


def open_feedback(
    open_part: OpenPart,
    *,
    model: DenseModel,
    checkpoint: Path | None,
    query_tower: Path | None,
    dense_run: Path,
    corpus: Path,
    queries: Path,
    indexes: Sequence[Path],
    moves: Moves,
    depth: int,
    compute: Compute,
) -> OpenSystem:
    """Open the first system and the model for single queries. The ids of the corpus are in memory."""
    first: OpenSystem = open_part(dense_run)
    runtime = compute.start()
    encoder = open_encoder(query_checkpoint(checkpoint, query_tower), model, runtime)
    search = _Search(encoder, corpus, indexes, moves, Restrictions(queries, depth), Compute(device="cpu"))
    names = collection.read_ids(corpus, np.arange(collection.count(corpus))[None]).names
    rows = {name: row for row, name in enumerate(names.to_pylist())}

    def rank(texts: Mapping[str, str]) -> runs.Run:
        return search.run(texts, first.rank(texts), rows)

    return OpenSystem(rank, depth, runtime.hardware, encoder.precision, (first,))


def _moved(query: np.ndarray, first: np.ndarray, last: np.ndarray, moves: Moves) -> np.ndarray:
    """Return a query's vector, moved by those of its first and last documents; as it is without documents.

    The steps in float32 are those of pyserini's ``DenseVectorRocchioPrf`` and ``DenseVectorAveragePrf``.
    """
    if not len(first):
        return query
    if moves.method == "average":
        return np.asarray(np.vstack((query, first)).mean(axis=0))
    moved: np.ndarray = moves.alpha * query + moves.beta * first.mean(axis=0)
    return moved - moves.gamma * last.mean(axis=0) if len(last) else moved
