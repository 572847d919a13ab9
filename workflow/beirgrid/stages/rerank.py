"""Stage rerank: score (query, document) pairs once, then reorder runs by the stored scores.

``score`` keeps its scores in parts under results/pairs/{reranker}/{dataset}/{fingerprint}, one file
per few minutes of work. The fingerprint covers all that a score depends on, so other depths and
first stages, and a rerun after a crash, score only the pairs that are new. Jobs of several first
stages may fill the same folder at once: each looks for what is new before each part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files, provenance
from ..core.errors import DataError
from ..core.progress import Progress
from ..data import collection, runs
from ..encoders import Scorer, add_compute_arguments, check_finite, open_scorer, pick_device, pick_precision

PART = 20_000
_SCHEMA = pa.schema([("query", pa.string()), ("document", pa.string()), ("score", pa.float32())])
Pair = tuple[str, str]
Scores = dict[Pair, float]


def add_score_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid score``."""
    parser.add_argument("--model", required=True, type=json.loads, help="registry entry of the reranker, as JSON")
    parser.add_argument("--checkpoint", required=True, type=provenance.artifact, help="folder of its checkpoint")
    parser.add_argument("--corpus", required=True, type=provenance.artifact, help="corpus.parquet")
    parser.add_argument("--queries", required=True, type=provenance.artifact, help="queries.parquet")
    parser.add_argument("--run", required=True, type=provenance.artifact, dest="run_file", help="first-stage run")
    parser.add_argument("--depth", default=100, type=int, help="how deep the run is scored")
    parser.add_argument("--pairs", required=True, type=Path, help="folder that keeps the scores of all first stages")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made them")
    add_compute_arguments(parser)
    parser.set_defaults(run=run_score)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid rerank``."""
    parser.add_argument("--system", required=True, help="name of the system, the tag of the run")
    parser.add_argument("--first-stage", required=True, type=provenance.artifact, help="run to reorder")
    parser.add_argument("--scores", required=True, type=Path, help="record that the score stage left (.json)")
    parser.add_argument("--depth", default=100, type=int, help="documents per query to reorder")
    parser.add_argument("--output", required=True, type=Path, help="run to write, .run.gz")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    parser.set_defaults(run=run_rerank)


def run_score(args: argparse.Namespace) -> None:
    """Score the pairs of a first stage that have no score yet."""
    device = pick_device(args.device)
    precision = pick_precision(args.model.get("precision", args.precision), device)
    settings = {**args.model, "precision": precision}
    store = args.pairs / _fingerprint(settings, args)
    store.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    with provenance.record("score", args.made, settings, parts) as facts:
        run = runs.read(args.run_file)
        wanted = [(query, document) for query, ranking in run.items() for document in ranking.ids[: args.depth]]
        scored, rate = _score_missing(args, precision, wanted, store)
        parts += sorted(store.glob("*.parquet"))
        facts.update(
            store=store.name,
            device=device,
            precision=precision,
            pairs=len(wanted),
            pairs_scored=scored,
            pairs_per_second=round(rate, 2),
        )


def _fingerprint(settings: dict[str, Any], args: argparse.Namespace) -> str:
    """Return a name for all that a score depends on: model, its files, precision, texts."""
    model = sorted(files.sha256(path) for path in args.checkpoint.rglob("*") if path.is_file())
    texts = [files.sha256(args.corpus), files.sha256(args.queries)]
    key = json.dumps([provenance.STAGE_VERSIONS["score"], settings, model, texts], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _score_missing(args: argparse.Namespace, precision: str, wanted: list[Pair], store: Path) -> tuple[int, float]:
    """Score pairs in parts that are each written when done; return how many were scored, and how many per second."""
    seen: set[Path] = set()
    missing = set(wanted) - read_scores(store, set(wanted), seen).keys()
    progress = Progress("score", len(missing), "pairs")
    if not missing:
        return 0, 0.0
    scorer = open_scorer(args.checkpoint, args.model, args.device, precision, args.batch_tokens)
    queries = collection.read_queries(args.queries)
    for planned in _parts([pair for pair in dict.fromkeys(wanted) if pair in missing], str(args.run_file)):
        missing -= read_scores(store, missing, seen).keys()
        part = [pair for pair in planned if pair in missing]
        progress.total = progress.done + len(missing)
        if part:
            _write_part(store, part, _score(scorer, part, args.corpus, queries, progress))
            missing -= set(part)
    return progress.done, progress.rate


def _parts(pairs: list[Pair], first_stage: str) -> list[list[Pair]]:
    """Return the pairs in parts; different first stages begin with different ones, so as not to score the same."""
    parts = [pairs[start : start + PART] for start in range(0, len(pairs), PART)]
    begin = int(hashlib.sha256(first_stage.encode()).hexdigest(), 16) % len(parts)
    return parts[begin:] + parts[:begin]


def _score(scorer: Scorer, part: list[Pair], corpus: Path, queries: dict[str, str], progress: Progress) -> np.ndarray:
    asked = {query: scorer.begin(queries[query]) for query in {query for query, _ in part}}
    counted = any(beginning.shorter for beginning in asked.values())
    documents = collection.pick_documents(corpus, {document for _, document in part})
    read = {document.id: scorer.begin(document.joined, counted) for document in documents}  # cut as it is read
    pairs = [asked[query] for query, _ in part], [read[document] for _, document in part]
    scores = scorer.score_beginnings(*pairs, progress)
    check_finite(scores, [f"query {query!r} with document {document!r}" for query, document in part], scorer.precision)
    return scores


def _write_part(store: Path, part: list[Pair], scores: np.ndarray) -> None:
    columns = [[query for query, _ in part], [document for _, document in part], scores]
    digest = hashlib.sha256(repr(part).encode()).hexdigest()[:16]
    with files.atomic(store / f"{digest}.parquet") as temporary:
        pq.write_table(pa.table(columns, schema=_SCHEMA), temporary, write_page_checksum=True)


def read_scores(store: Path, wanted: Collection[Pair], seen: set[Path] | None = None) -> Scores:
    """Return those of the wanted pairs' scores that a folder keeps; damaged parts are deleted, with a warning.

    Args:
        store: a folder of parts; an absent one has none.
        wanted: memory is taken for these only.
        seen: parts that were read before, and are not read again; those read now are added.
    """
    scores: Scores = {}
    for part in sorted(set(store.glob("*.parquet")) - (seen or set())):
        try:
            with files.reading(part):
                table = pq.read_table(part, page_checksum_verification=True)
                if table.schema != _SCHEMA or not np.isfinite(table["score"]).all():
                    raise ValueError("its columns are not those of pair scores, or not all scores are finite")
        except DataError as error:
            print(f"warning: {error}: its pairs are scored anew", file=sys.stderr)
            part.unlink(missing_ok=True)
            continue
        pairs = zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True)
        scores.update(
            (pair, score) for pair, score in zip(pairs, table["score"].to_pylist(), strict=True) if pair in wanted
        )
        if seen is not None:
            seen.add(part)
    return scores


def run_rerank(args: argparse.Namespace) -> None:
    """Reorder the top of a run by stored scores and write the new run."""
    with provenance.record("rerank", args.made, {"depth": args.depth}, [args.output]) as facts:
        scored = provenance.read_record(args.scores)
        first = runs.read(args.first_stage)
        top = {(query, document) for query, ranking in first.items() for document in ranking.ids[: args.depth]}
        scores = read_scores(args.scores.parent / scored["facts"]["store"], top)
        run = {query: rerank(query, ranking, scores, args.depth) for query, ranking in first.items()}
        runs.write(args.output, run, args.system)
        facts.update(queries=len(run), reranker=scored["settings"])


def rerank(query: str, ranking: runs.Ranking, scores: Scores, depth: int) -> runs.Ranking:
    """Return the ranking with its top ``depth`` in the order of ``scores`` and the rest as it was.

    The rest gets scores below the reranked ones, in the first stage's order.
    """
    top = ranking.ids[:depth]
    unscored = [document for document in top if (query, document) not in scores]
    if unscored:
        raise DataError(f"no score for query {query!r} with document {unscored[0]!r}: run the grid again, to score it")
    head = runs.canonical(query, top, [scores[query, document] for document in top])
    rest = ranking.ids[depth:]
    floor = float(head.scores[-1]) if top else 0.0
    # Steps that float32 can tell apart at any logit's size, so that ties do not reorder the rest.
    below = np.float32(floor) - np.maximum(1.0, abs(floor)) * np.arange(1, len(rest) + 1, dtype=np.float32) / 1024
    return runs.Ranking([*head.ids, *rest], np.concatenate([head.scores, below.astype(np.float32)]))
