"""Compute depth curves: a metric by the number of reranked documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from ..config.metric_names import parse_metric
from ..core import paths, provenance
from ..results.cells import RecordedStep
from ..results.summary import Cell
from ..runs import metrics, pairs, runs
from ..runs.pairs import PairScores

# Depths of a curve, up to the system's own. Depth 0 is the first stage.
DEPTHS = (0, 1, 2, 3, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
DEPTH_COLUMNS = ["system", "dataset", "first_stage", "metric", "depth", "value", "queries"]


def curve(
    first: runs.Run,
    scores: PairScores,
    qrels: Mapping[str, Mapping[str, int]],
    depth: int,
    metric: str,
) -> dict[int, float]:
    """Compute the mean of a metric by depth from stored scores; no model runs.

    Args:
        first: the first stage's run.
        scores: score of each (query, document) pair down to ``depth``.
        qrels: query to document id to grade.
        depth: documents that the system reorders; the curve ends there.
        metric: name of the metric, name@k.

    Raises:
        DataError: a document down to ``depth`` has no score.
    """
    name, k = parse_metric(metric)
    values = {}
    for count in sorted({*(d for d in DEPTHS if d < depth), depth}):
        # Below rank k, only judged documents matter, and only to metrics that skip unjudged ones.
        end = None if name == "ndcg_judged" else max(count, k)
        cut = {query: runs.Ranking(ranking.ids[:end], ranking.scores[:end]) for query, ranking in first.items()}
        run = {query: runs.reordered(query, ranking, scores, count) for query, ranking in cut.items()}
        values[count] = float(np.mean(metrics.per_query(run, qrels, [metric])[metric]))
    return values


def of_cell(
    cell: Cell, steps: Iterable[RecordedStep], qrels: Mapping[str, Mapping[str, int]], metric: str
) -> pd.DataFrame:
    """Return the curve of a cell as rows; there are none if its system reranks nothing."""
    own = next((step.record for step in steps if step.path in cell.records[-1:]), None)
    if own is None or "reranker" not in own["facts"]:
        return pd.DataFrame(columns=DEPTH_COLUMNS)
    # A cell's records are in step order, so the last record of pair scores is the system's own.
    place = next(Path(path) for path in reversed(cell.records) if Path(path).match("pairs/*/*/*.json"))
    depth, named = own["settings"]["depth"], {"system": place.stem, "dataset": cell.dataset}
    first = runs.read(provenance.artifact(paths.RUN.format(**named)))
    needed = {(query, document) for query, ranking in first.items() for document in ranking.ids[:depth]}
    scores = pairs.read_parts(pairs.read_manifest(place)[0], needed)
    facts = (cell.system, cell.dataset, place.stem, metric)
    rows = [(*facts, *of_depth, len(qrels)) for of_depth in curve(first, scores, qrels, depth, metric).items()]
    return pd.DataFrame(rows, columns=DEPTH_COLUMNS)
