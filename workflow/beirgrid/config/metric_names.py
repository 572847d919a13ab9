"""Names of metrics: ``name@k`` in files and configurations, ``nDCG@10`` as ir_measures writes it for readers."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ..core.errors import BeirgridError, nearest, quoted
from .values import MOST_SIZE

NAMES = (
    *("ndcg", "ndcg_burges", "ndcg_judged", "recall", "recall_cap", "mrr", "map", "p", "success"),
    *("hole", "hole_corpus", "p_mrr", "robustness", "paired_accuracy", "map_subqueries"),
)
# The names that ir_measures has for them. It has none for the other metrics.
_MEASURES = {
    **{"ndcg": "nDCG", "ndcg_burges": "nDCG(dcg='exp-log2')", "ndcg_judged": "nDCG(judged_only=True)"},
    **{"recall": "R", "mrr": "RR", "map": "AP", "p": "P", "success": "Success"},
}
_NAMES = {measure: name for name, measure in _MEASURES.items()}
# Stands for the main metric of each dataset.
MAIN = "main"
# The main metric of a dataset whose entry names none.
USUAL = "ndcg@10"
# What config.yaml asks for.
STANDARD = ("ndcg@10", "recall@100", "recall@1000", "mrr@10", "map@1000", "p@10")
# Metrics of which lower values are better.
_LOWER = ("hole", "hole_corpus")


class MetricError(BeirgridError, ValueError):
    """A text names no metric. As a ValueError, a validator may raise it."""


class Metric(NamedTuple):
    """A metric cut off at rank ``k``."""

    name: str
    k: int


@cache
def metric_key(text: str) -> str:
    """Return a metric's name in files: ``ndcg@10`` for ``nDCG@10``. Other texts are returned unchanged."""
    name, at, k = text.partition("@")
    return f"{_NAMES.get(name, name)}{at}{k}"


def written(name: str) -> str:
    """Return a metric's printed name: ``nDCG@10`` for ``ndcg@10``."""
    base, at, k = name.partition("@")
    return f"{_MEASURES.get(base, base)}{at}{k}"


@cache
def parse_metric(text: str) -> Metric:
    """Read ``name@k``, in either spelling, or ``main``; raise MetricError with the closest metric for other texts."""
    text = metric_key(text)
    if text == MAIN:
        return Metric(MAIN, 1)
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]*)", text)
    if not match:
        base = text.split("@")[0].lower()
        hint = nearest(base, NAMES).replace("'?", "@k'?")
        raise MetricError(f"{text!r} is not a metric of the form name@k, such as ndcg@10{hint}")
    if match[1] not in NAMES:
        raise MetricError(f"there is no metric {match[1]!r}{nearest(match[1], NAMES)} (known: {', '.join(NAMES)})")
    if len(match[2]) > len(str(MOST_SIZE)) or int(match[2]) > MOST_SIZE:
        raise MetricError(f"{quoted(text)} looks deeper than any run ({MOST_SIZE:,} documents)")
    return Metric(match[1], int(match[2]))


def registered_metric(text: str) -> str:
    """Return a metric's name in files; refuse a text that names none."""
    parse_metric(text)
    return metric_key(text)


def lower_is_better(metric: str) -> bool:
    """Tell whether lower values of a metric are better, as for holes."""
    return parse_metric(metric).name in _LOWER
