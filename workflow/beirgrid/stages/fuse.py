"""Stage fuse: one run made of several, through ranx."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from ..core import provenance
from ..core.environment import prepare_libraries
from ..core.errors import DataError
from ..data import runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid fuse``."""
    parser.add_argument("--system", required=True, help="name of the system, the tag of the run")
    parser.add_argument("--runs", required=True, nargs="+", type=provenance.artifact, help="runs to fuse")
    parser.add_argument("--method", required=True, choices=["rrf", "wsum"])
    parser.add_argument("--k", default=60, type=int, help="constant of reciprocal rank fusion")
    parser.add_argument("--norm", default="min-max", help="normalisation of scores before a weighted sum")
    parser.add_argument("--weights", type=json.loads, help="weights of a weighted sum, as JSON (equal unless given)")
    parser.add_argument("--depth", default=1000, type=int, help="documents per query to keep")
    parser.add_argument("--output", required=True, type=Path, help="run to write, .run.gz")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fuse runs and write the canonical result."""
    parts = [runs.read(path) for path in args.runs]
    if args.method == "rrf":
        settings: dict[str, object] = {"method": "rrf", "k": args.k}
        weights = None
    else:
        weights = args.weights or [1 / len(parts)] * len(parts)
        settings = {"method": "wsum", "norm": args.norm, "weights": weights}
    with provenance.record("fuse", args.made, settings, [args.output]) as facts:
        fused = fuse(parts, args.method, args.depth, k=args.k, norm=args.norm, weights=weights)
        runs.write(args.output, fused, args.system)
        facts["queries"] = len(fused)


def fuse(
    parts: list[runs.Run],
    method: str,
    depth: int,
    k: int = 60,
    norm: str = "min-max",
    weights: list[float] | None = None,
) -> runs.Run:
    """Return the fusion of runs by reciprocal rank (``rrf``) or normalised weighted sum (``wsum``).

    A query that a run has no documents for takes part with the other runs only.
    """
    queries = list(dict.fromkeys(query for part in parts for query in part))
    if not queries:
        return {}
    if norm == "max" and method == "wsum":
        _refuse_negative(parts)
    fused: runs.Run = {}
    for start in range(0, len(queries), CHUNK):
        fused.update(_fuse_queries(parts, queries[start : start + CHUNK], method, depth, k, norm, weights))
    return fused


def _fuse_queries(
    parts: list[runs.Run],
    queries: list[str],
    method: str,
    depth: int,
    k: int,
    norm: str,
    weights: list[float] | None,
) -> runs.Run:
    prepare_libraries()
    import ranx

    # ranx compiles anew for each length of the longest id that it meets, so ids become numbers of one
    # width. Methods that look at ranks alone get scores that fall by one, so that ties keep their
    # canonical order.
    by_rank = method == "rrf" or norm in ("rank", "borda")
    names = {query: _names([part[query] for part in parts if query in part]) for query in queries}
    inputs = [ranx.Run({query: _scores(part.get(query), names[query], by_rank) for query in queries}) for part in parts]
    if method == "rrf":
        fused = ranx.fuse(inputs, norm=None, method="rrf", params={"k": k})
    else:
        fused = ranx.fuse(inputs, norm=norm, method="wsum", params={"weights": weights})
    result: runs.Run = {}
    for query, numbered in fused.to_dict().items():
        documents = {number: document for document, number in names[query].items()}
        scores = {documents[number]: score for number, score in numbered.items() if number in documents}
        result[query] = runs.canonical(query, scores, np.fromiter(scores.values(), np.float64, len(scores)), depth)
    return result


# Queries that ranx holds at a time: its runs take some 100 times the memory of the files.
CHUNK = 500
_WIDTH = 8
# ranx cannot type a query without documents; this stands in for one and is left out of the result.
_PLACEHOLDER = "-" * _WIDTH


def _names(rankings: list[runs.Ranking]) -> dict[str, str]:
    """Return document id to number, as text of one width, for the documents of one query."""
    ids = dict.fromkeys(document for ranking in rankings for document in ranking.ids)
    return {document: f"{number:0{_WIDTH}d}" for number, document in enumerate(ids)}


def _scores(ranking: runs.Ranking | None, names: dict[str, str], by_rank: bool) -> dict[str, float]:
    if ranking is None or not ranking.ids:
        return {_PLACEHOLDER: 0.0}
    scores = range(len(ranking.ids), 0, -1) if by_rank else ranking.scores.tolist()
    return {names[document]: float(score) for document, score in zip(ranking.ids, scores, strict=True)}


def _refuse_negative(parts: list[runs.Run]) -> None:
    """Refuse scores that division by the maximum would turn upside down (logits, say)."""
    for number, part in enumerate(parts, start=1):
        for query, ranking in part.items():
            if ranking.ids and ranking.scores[0] <= 0:
                raise DataError(
                    f"run {number}, query {query!r}: its best score is {ranking.scores[0]:g}, which norm max cannot "
                    "divide by; use norm min-max"
                )
