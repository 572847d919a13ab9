"""Stage score: score (query, document) pairs, each only once.

Scores are stored in parts under results/pairs/{reranker}/{dataset}/{fingerprint}. A part is a few minutes of work. The
fingerprint covers everything that affects a score. Other depths, other first stages and a rerun after a crash therefore
score only new pairs. Jobs of several first stages may fill the same folder at the same time. Before each part, a job
looks for pairs that other jobs have scored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ...collections import collection
from ...config.models import ListwiseReranker, Reranker
from ...config.values import Size
from ...core import provenance
from ...core.compute import Compute
from ...core.errors import quoted
from ...core.progress import Progress
from ...core.provenance import Artifact, Made
from ...encoders import open_model, served
from ...encoders.guards import check_finite, check_scores_differ
from ...encoders.protocol import Scorer
from ...runs import runs
from ...runs.opened import OpenPart, OpenScorer
from ...runs.pairs import Pair, read_parts, spent_on, write_part

# Pairs per part.
PART = 20_000


def score(
    *,
    model: Reranker,
    checkpoint: Annotated[Artifact, "folder of the model's checkpoint"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    queries: Annotated[Artifact, "queries.parquet"],
    run: Annotated[Artifact, "first-stage run"],
    depth: Annotated[Size, "documents per query to score"] = 100,
    compute: Compute,
    pairs: Annotated[Path, "folder of the stores, in which the record is written"],
    version: Annotated[int, "version of the stage, which the name of the store covers"] = 0,
) -> Made:
    """Score the (query, document) pairs of a first stage that have no score yet.

    Raises:
        DataError: an input is damaged, the checkpoint does not match the entry, or scores are not finite or all equal.
    """
    runtime = compute.start()
    opened = cache(partial(open_model, checkpoint, model, runtime, pairs / "answers"))
    precision = served.PRECISION if model.endpoint else runtime.resolve(model.precision)
    if precision == "float16":  # used only if the model fits it
        precision = opened().precision
    settings = {**model.own_keys(), "precision": precision}
    # A listwise order depends on all of its documents.
    ordered = (run, depth) if isinstance(model, ListwiseReranker) else None
    store = pairs / _fingerprint(version, settings, checkpoint, corpus, queries, ordered)
    store.mkdir(parents=True, exist_ok=True)
    ranked = runs.read(run)
    top = [(query, document) for query, ranking in ranked.items() for document in ranking.ids[:depth]]
    seen = set(store.glob("*.parquet"))
    stored = read_parts(seen, set(top))
    missing = set(top) - stored.keys()
    scorer = opened() if missing else None
    progress = Progress("score", len(missing), "pairs")  # its rate begins with the open model
    where = served.DEVICE if model.endpoint else runtime.kind
    about_model: dict[str, Any] = {"device": where, "precision": precision}
    if scorer:
        new = [pair for pair in dict.fromkeys(top) if pair in missing]
        texts = collection.read_queries(queries)
        collection.refuse_unknown(queries, "query", (query for query, _ in new), texts)
        before = scorer.spent()
        found = np.fromiter(stored.values(), np.float32, len(stored))
        for part in _new_parts(store, seen, _parts(new, str(run)), progress):
            scores = _score(scorer, part, corpus, texts, found, progress)
            found = np.concatenate([found, scores])
            now = scorer.spent()
            write_part(store, part, scores, {name: now[name] - before[name] for name in now})
            before = now
        about_model = scorer.facts()
    parts = sorted(store.glob("*.parquet"))
    manifest = {"store": store.name, "parts": [part.name for part in parts], "settings": settings}
    if model.endpoint or getattr(model, "chunks", None):
        # For all pairs, including those that other jobs scored.
        about_model |= spent_on(parts, set(top))
    facts = {
        **about_model,
        "store": store.name,
        "queries": len(ranked),
        "pairs": len(top),
        "pairs_scored": progress.done,
        "pairs_per_second": round(progress.rate if progress.done else 0.0, 2),
    }
    return Made(facts, {"pairs": manifest}, parts)


def open_score(
    _: OpenPart,
    *,
    model: Reranker,
    checkpoint: Path,
    corpus: Path,
    queries: Path,
    run: Path,
    depth: int,
    compute: Compute,
) -> OpenScorer:
    """Open a reranker for the documents of a corpus. The queries and the run only named the pairs of its job."""
    runtime = compute.start()
    scorer: Scorer = open_model(checkpoint, model, runtime)

    def read(ids: set[str]) -> dict[str, str]:
        return {document.id: document.full_text for document in collection.pick_documents(corpus, ids)}

    def score(text: str, documents: list[str]) -> np.ndarray:
        return scorer.score([text] * len(documents), documents) if documents else np.zeros(0, np.float32)

    together = depth if isinstance(model, ListwiseReranker) else 0
    return OpenScorer(read, score, runtime.hardware, scorer.precision, together)


def _fingerprint(
    version: int,
    settings: dict[str, Any],
    checkpoint: Path,
    corpus: Path,
    queries: Path,
    ordered: tuple[Path, int] | None,
) -> str:
    """Digest everything that affects a score: model, its files, precision, texts; for listwise models, also run and
    depth.
    """
    model = sorted(provenance.record_of(checkpoint).hashes.values())
    texts = [*provenance.record_of(corpus).hashes.values(), *provenance.record_of(queries).hashes.values()]
    first_stage = [[*provenance.record_of(ordered[0]).hashes.values(), ordered[1]]] if ordered else []
    key = json.dumps([version, settings, model, texts, *first_stage], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _new_parts(store: Path, seen: set[Path], parts: list[list[Pair]], progress: Progress) -> Iterator[list[Pair]]:
    """Yield parts without pairs that other jobs have written meanwhile."""
    missing = {pair for part in parts for pair in part}
    for planned in parts:
        written = set(store.glob("*.parquet")) - seen
        seen |= written
        missing -= read_parts(written, missing).keys()
        progress.total = progress.done + len(missing)
        if part := [pair for pair in planned if pair in missing]:
            yield part
            missing -= set(part)


def _parts(pairs: list[Pair], first_stage: str) -> list[list[Pair]]:
    """Divide the pairs into parts, keeping a query's pairs together. Each first stage starts with a different part."""
    parts: list[list[Pair]] = []
    for _, of_query in groupby(pairs, itemgetter(0)):
        if not parts or len(parts[-1]) >= PART:
            parts.append([])
        parts[-1] += of_query
    begin = int(hashlib.sha256(first_stage.encode()).hexdigest(), 16) % len(parts)
    return parts[begin:] + parts[:begin]


def _score(
    scorer: Scorer, part: list[Pair], corpus: Path, queries: dict[str, str], found: np.ndarray, progress: Progress
) -> np.ndarray:
    """Score the pairs of a part: float32 [pairs]. The scores so far (``found``) count if all of the part are equal."""
    documents = collection.pick_documents(corpus, {document for _, document in part})
    texts = {document.id: document.full_text for document in documents}
    collection.refuse_unknown(corpus, "document", (document for _, document in part), texts)
    pairs = [queries[query] for query, _ in part], [texts[document] for _, document in part]
    scores = scorer.score(*pairs, progress=progress)
    check_finite(
        scores,
        [f"query {quoted(query)} with document {quoted(document)}" for query, document in part],
        scorer.precision,
    )
    of_part = ((query, texts[document]) for query, document in part)
    check_scores_differ(np.concatenate([found, scores]), of_part, scorer.precision)
    return scores
