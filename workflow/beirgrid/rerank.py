"""Stage rerank: score (query, document) pairs once, then reorder runs by the stored scores.

``score`` keeps its scores in parts under results/pairs/{reranker}/{dataset}/{fingerprint}, one file
per few minutes of work. The fingerprint covers all that a score depends on, so other depths and
first stages, and a rerun after a crash, score only the pairs that are new.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import collection, files, provenance, runs
from .encoders import add_compute_arguments, check_finite, open_scorer, pick_device, pick_precision
from .errors import DataError
from .progress import Progress

PART = 20_000
_SCHEMA = pa.schema([("query", pa.string()), ("document", pa.string()), ("score", pa.float32())])
Scores = dict[tuple[str, str], float]


def add_score_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid score``."""
    parser.add_argument("--model", required=True, type=json.loads, help="registry entry of the reranker, as JSON")
    parser.add_argument("--checkpoint", required=True, type=Path, help="folder of its checkpoint")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.parquet")
    parser.add_argument("--queries", required=True, type=Path, help="queries.parquet")
    parser.add_argument("--run", required=True, type=Path, dest="run_file", help="first-stage run")
    parser.add_argument("--depth", default=100, type=int, help="how deep the run is scored")
    parser.add_argument("--pairs", required=True, type=Path, help="folder that keeps the scores of all first stages")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made them")
    add_compute_arguments(parser)
    parser.set_defaults(run=run_score)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid rerank``."""
    parser.add_argument("--system", required=True, help="name of the system, the tag of the run")
    parser.add_argument("--first-stage", required=True, type=Path, help="run to reorder")
    parser.add_argument("--scores", required=True, type=Path, help="record that the score stage left (.json)")
    parser.add_argument("--depth", default=100, type=int, help="documents per query to reorder")
    parser.add_argument("--output", required=True, type=Path, help="run to write, .run.gz")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    parser.set_defaults(run=run_rerank)


def run_score(args: argparse.Namespace) -> None:
    """Score the pairs of a first stage that have no score yet."""
    from filelock import FileLock

    device = pick_device(args.device)
    precision = pick_precision(args.model.get("precision", args.precision), device)
    settings = {**args.model, "precision": precision}
    store = args.pairs / _fingerprint(settings, args)
    store.mkdir(parents=True, exist_ok=True)
    with provenance.record("score", args.made, settings) as facts:
        run = runs.read(args.run_file)
        wanted = [(query, document) for query, ranking in run.items() for document in ranking.ids[: args.depth]]
        # Another first stage's job may score the same pairs at the same time: it goes first.
        with FileLock(store / ".lock"):
            stored = read_scores(store)
            missing = [pair for pair in wanted if pair not in stored]
            rate = _score_missing(args, precision, missing, store)
        facts.update(
            store=store.name,
            device=device,
            precision=precision,
            pairs=len(wanted),
            pairs_scored=len(missing),
            pairs_per_second=round(rate, 2),
        )


def _fingerprint(settings: dict[str, Any], args: argparse.Namespace) -> str:
    """Return a name for all that a score depends on: model, its files, precision, texts."""
    model = sorted(files.sha256(path) for path in args.checkpoint.rglob("*") if path.is_file())
    texts = [files.sha256(args.corpus), files.sha256(args.queries)]
    key = json.dumps([provenance.STAGE_VERSIONS["score"], settings, model, texts], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _score_missing(args: argparse.Namespace, precision: str, missing: list[tuple[str, str]], store: Path) -> float:
    """Score pairs in parts that are each written when done; return pairs per second."""
    progress = Progress("score", len(missing), "pairs")
    if not missing:
        return 0.0
    scorer = open_scorer(args.checkpoint, args.model, args.device, precision, args.batch_tokens)
    queries = collection.read_queries(args.queries)
    for start in range(0, len(missing), PART):
        part = missing[start : start + PART]
        documents = collection.pick_documents(args.corpus, {document for _, document in part})
        texts = [documents[document].joined for _, document in part]
        scores = scorer.score([queries[query] for query, _ in part], texts, progress)
        check_finite(scores, [f"query {query!r} with document {document!r}" for query, document in part])
        columns = [[query for query, _ in part], [document for _, document in part], scores]
        digest = hashlib.sha256(repr(part).encode()).hexdigest()[:16]
        with files.atomic(store / f"{digest}.parquet") as temporary:
            pq.write_table(pa.table(columns, schema=_SCHEMA), temporary)
    return progress.rate


def read_scores(store: Path) -> Scores:
    """Return the scores kept in a folder of parts; an absent folder has none."""
    scores: Scores = {}
    for part in sorted(store.glob("*.parquet")):
        table = pq.read_table(part)
        pairs = zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True)
        scores.update(zip(pairs, table["score"].to_pylist(), strict=True))
    return scores


def run_rerank(args: argparse.Namespace) -> None:
    """Reorder the top of a run by stored scores and write the new run."""
    with provenance.record("rerank", args.made, {"depth": args.depth}) as facts:
        scored = files.read_json(args.scores)
        scores = read_scores(args.scores.parent / scored["facts"]["store"])
        run = {
            query: rerank(query, ranking, scores, args.depth) for query, ranking in runs.read(args.first_stage).items()
        }
        runs.write(args.output, run, args.system)
        facts.update(queries=len(run), reranker=scored["settings"])


def rerank(query: str, ranking: runs.Ranking, scores: Scores, depth: int) -> runs.Ranking:
    """Return the ranking with its top ``depth`` in the order of ``scores`` and the rest as it was.

    The rest gets scores below the reranked ones, in the first stage's order.
    """
    top = ranking.ids[:depth]
    unscored = [document for document in top if (query, document) not in scores]
    if unscored:
        raise DataError(f"no score for query {query!r} with document {unscored[0]!r}: run the score stage again")
    head = runs.canonical(query, top, [scores[query, document] for document in top])
    rest = ranking.ids[depth:]
    floor = float(head.scores[-1]) if top else 0.0
    # Steps that float32 can tell apart at any logit's size, so that ties do not reorder the rest.
    below = np.float32(floor) - np.maximum(1.0, abs(floor)) * np.arange(1, len(rest) + 1, dtype=np.float32) / 1024
    return runs.Ranking([*head.ids, *rest], np.concatenate([head.scores, below.astype(np.float32)]))
