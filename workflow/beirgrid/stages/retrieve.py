"""Stage retrieve: the top documents per query, from Lucene, faiss, impact postings or token vectors."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core import files, provenance
from ..core.errors import DataError
from ..core.progress import Progress
from ..data import collection, runs
from ..encoders import Variety, add_compute_arguments, check_finite, open_encoder
from ..search import impact, lucene, maxsim


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid retrieve``."""
    kinds = parser.add_subparsers(dest="kind", required=True)

    lexical = kinds.add_parser("lucene", help="search with BM25")
    lexical.add_argument("--index", required=True, type=provenance.artifact, help="Lucene index")
    lexical.add_argument("--fields", required=True, choices=sorted(lucene.COLLECTIONS))
    lexical.add_argument("--language", default="en", help="ISO 639-1 code that picks the analyzer")
    lexical.add_argument("--k1", default=0.9, type=float)
    lexical.add_argument("--b", default=0.4, type=float)
    lexical.add_argument("--threads", default=1, type=int)
    lexical.add_argument("--memory", default=1500, type=int, help="Java heap in MB")
    lexical.set_defaults(run=run_lucene)

    dense = kinds.add_parser("faiss", help="encode the queries and search faiss shards exactly")
    dense.set_defaults(run=run_shards, search=_search_faiss)

    sparse = kinds.add_parser("impact", help="encode the queries and search postings exactly")
    sparse.set_defaults(run=run_shards, search=_search_impact)

    late = kinds.add_parser("late", help="encode the queries and score documents by MaxSim over their tokens")
    late.add_argument("--candidates", default=100, type=int, help="nearest tokens per query token")
    late.add_argument(
        "--indexes", nargs="+", type=provenance.artifact, help="the index of each shard; without any, score everything"
    )
    late.set_defaults(run=run_late)

    for kind in (dense, sparse, late):
        kind.add_argument("--model", required=True, type=json.loads, help="registry entry of the model, as JSON")
        kind.add_argument(
            "--checkpoint", required=True, type=provenance.artifact, help="folder of the fetched checkpoint"
        )
        kind.add_argument(
            "--corpus", required=True, type=provenance.artifact, help="corpus.parquet, for the document ids"
        )
        kind.add_argument(
            "--shards", required=True, nargs="+", type=provenance.artifact, help="shards of the corpus, in row order"
        )
        add_compute_arguments(kind)

    for kind in (lexical, dense, sparse, late):
        kind.add_argument("--system", required=True, help="name of the system, the tag of the run")
        kind.add_argument("--queries", required=True, type=provenance.artifact, help="queries.parquet")
        kind.add_argument("--depth", default=1000, type=int, help="documents per query")
        kind.add_argument("--output", required=True, type=Path, help="run to write, .run.gz")
        kind.add_argument("--made", required=True, type=Path, help="where to record what made it")


def run_lucene(args: argparse.Namespace) -> None:
    """Search all queries with BM25 and write the canonical run."""
    settings = {"fields": args.fields, "language": args.language, "k1": args.k1, "b": args.b, "depth": args.depth}
    with provenance.record("retrieve", args.made, settings, [args.output]) as facts:
        queries, excluded = collection.read_queries(args.queries), collection.read_excluded(args.queries)
        with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder:
            started = time.monotonic()
            hits = lucene.search(
                args.index,
                queries,
                Path(folder),
                fields=args.fields,
                language=args.language,
                k1=args.k1,
                b=args.b,
                depth=_searched(args.depth, excluded),
                threads=args.threads,
                memory_mb=args.memory,
            )
            facts["search_seconds"] = round(time.monotonic() - started, 3)
        found = {query: runs.canonical(query, *hits[query], args.depth, excluded.get(query, ())) for query in queries}
        runs.write(args.output, found, args.system)
        facts.update(_run_facts(found, len(queries)), device="cpu")


def run_shards(args: argparse.Namespace) -> None:
    """Encode the queries, search every shard exactly and write the canonical run."""
    settings = {**args.model, "depth": args.depth}
    with provenance.record("retrieve", args.made, settings, [args.output]) as facts:
        queries, excluded = collection.read_queries(args.queries), collection.read_excluded(args.queries)
        encoder = open_encoder(args.checkpoint, args.model, args.device, args.precision, args.batch_tokens)
        vectors = encoder.encode_queries(list(queries.values()))
        check_finite(vectors, [f"query {query!r}" for query in queries], encoder.precision)
        _check_variety(encoder, vectors, queries)
        started = time.monotonic()
        scores, rows = args.search(args, vectors, _searched(args.depth, excluded))
        facts["search_seconds"] = round(time.monotonic() - started, 3)
        ids = collection.read_ids(args.corpus, rows)
        found = dict(_rankings(queries, excluded, ids, scores, rows, args.depth))
        runs.write(args.output, found, args.system)
        facts.update(encoder.facts(), **_run_facts(found, len(queries)))


def _search_faiss(args: argparse.Namespace, vectors: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    return search_shards(args.shards, vectors, depth)


def _search_impact(args: argparse.Namespace, weights: Any, depth: int) -> tuple[np.ndarray, np.ndarray]:
    return impact.search_shards(args.shards, weights, depth)


def run_late(args: argparse.Namespace) -> None:
    """Encode the queries, score the candidates (or every document) by MaxSim and write the canonical run."""
    search = {"candidates": args.candidates} if args.indexes else {"exhaustive": True}
    settings = {**args.model, **search, "depth": args.depth}
    with provenance.record("retrieve", args.made, settings, [args.output]) as facts:
        queries, excluded = collection.read_queries(args.queries), collection.read_excluded(args.queries)
        encoder = open_encoder(args.checkpoint, args.model, args.device, args.precision, args.batch_tokens)
        found = encoder.encode_queries(list(queries.values()))
        check_finite(found.sums(), [f"query {query!r}" for query in queries], encoder.precision)
        _check_variety(encoder, found.sums(), queries)
        progress = Progress(f"retrieve from {len(args.shards)} shards", len(queries) * len(args.shards), "searches")
        started = time.monotonic()
        if args.indexes:
            scores, rows = maxsim.search(args.shards, args.indexes, found, args.candidates, progress)
            facts["candidates_per_query"] = round(float(np.mean([len(row) for row in rows])), 1)
        else:
            depth = _searched(args.depth, excluded)
            scores, rows = maxsim.search_exhaustively(args.shards, found, depth, progress)
        facts["search_seconds"] = round(time.monotonic() - started, 3)
        run = dict(_rankings(queries, excluded, collection.read_ids(args.corpus, rows), scores, rows, args.depth))
        runs.write(args.output, run, args.system)
        facts.update(encoder.facts(), **_run_facts(run, len(queries)))


def _check_variety(encoder: Any, vectors: Any, queries: dict[str, str]) -> None:
    variety = Variety(encoder)
    variety.add(vectors, list(queries.values()))
    variety.check("all queries")


def _searched(depth: int, excluded: dict[str, set[str]]) -> int:
    """Return how many documents to search for: all documents that are dropped may be among the best."""
    return depth + max(map(len, excluded.values()), default=0)


def _run_facts(run: runs.Run, queries: int) -> dict[str, int]:
    empty = queries - sum(bool(ranking.ids) for ranking in run.values())
    return {"queries": queries, "queries_without_documents": empty}


def search_shards(shards: Iterable[Path], queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Search faiss shards one after another and merge.

    Only one shard is mapped at a time, so memory does not grow with the corpus.

    Args:
        shards: faiss index files whose rows, one after another, are the corpus's rows.
        queries: float32 [queries, dimension].
        depth: documents per query.

    Returns:
        float32 scores and int64 corpus rows, both [queries, min(depth, documents)], best first.
    """
    import faiss

    best = faiss.ResultHeap(len(queries), depth, keep_max=True)
    start = 0
    for path in shards:
        with files.reading(path):
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        if index.d != queries.shape[1]:
            raise DataError(
                f"{path} holds vectors of dimension {index.d}, but the model gives {queries.shape[1]}: "
                "the checkpoint changed since the corpus was indexed"
            )
        scores, rows = index.search(queries, min(depth, index.ntotal))
        best.add_result(scores, rows + start)
        start += index.ntotal
        del index  # unmapped before the next one is mapped
    best.finalize()
    kept = min(depth, start)
    return best.D[:, :kept], best.I[:, :kept]


def _rankings(
    queries: dict[str, str],
    excluded: dict[str, set[str]],
    ids: collection.Ids,
    scores: Sequence[np.ndarray] | np.ndarray,
    rows: Sequence[np.ndarray] | np.ndarray,
    depth: int,
) -> Iterator[tuple[str, runs.Ranking]]:
    for number, query in enumerate(queries):
        found = rows[number] >= 0
        documents = ids.take(rows[number][found]).to_pylist()
        yield query, runs.canonical(query, documents, scores[number][found], depth, excluded.get(query, ()))
