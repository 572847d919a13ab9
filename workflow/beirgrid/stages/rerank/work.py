"""Stage rerank: reorder the top of a run by stored pair scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from ...config.values import Size
from ...core.errors import DataError, quoted
from ...core.provenance import Artifact, Facts
from ...runs import pairs, runs
from ...runs.opened import OpenPart, OpenScorer, OpenSystem


def rerank(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    first_stage: Annotated[Artifact, "run to reorder"],
    scores: Annotated[Path, "manifest from the score stage, .json"],
    depth: Annotated[Size, "documents per query to reorder"] = 100,
    output: Annotated[Path, "run to write, .run.gz"],
) -> Facts:
    """Reorder the top of a run by stored pair scores.

    Raises:
        DataError: an input is damaged, or a document has no score.
    """
    parts, settings = pairs.read_manifest(scores)
    first = runs.read(first_stage)
    top = {(query, document) for query, ranking in first.items() for document in ranking.ids[:depth]}
    found = pairs.read_parts(parts, top)
    if missing := top - found.keys():
        query, document = min(missing)
        pair = f"query {quoted(query)} with document {quoted(document)}"
        raise DataError(f"{scores} has no score for {pair}: run the grid again to score it")
    run = {query: runs.reordered(query, ranking, found, depth) for query, ranking in first.items()}
    runs.write(output, run, system)
    return {"queries": len(run), "reranker": settings}


def open_rerank(open_part: OpenPart, *, first_stage: Path, scores: Path, depth: int) -> OpenSystem:
    """Open a first stage and its reranker for single queries."""
    first: OpenSystem = open_part(first_stage)
    scorer: OpenScorer = open_part(scores)

    def reordered(query: str, text: str, ranking: runs.Ranking) -> runs.Ranking:
        top = ranking.ids[: max(depth, scorer.together)]
        documents = scorer.read({*top})
        of_pairs = scorer.score(text, [documents[document] for document in top]).tolist()
        scored = {(query, document): score for document, score in zip(top, of_pairs, strict=True)}
        return runs.reordered(query, ranking, scored, depth)

    def rank(texts: Mapping[str, str]) -> runs.Run:
        return {query: reordered(query, texts[query], ranking) for query, ranking in first.rank(texts).items()}

    return OpenSystem(rank, depth, scorer.hardware, scorer.precision, (first,), scorer)
