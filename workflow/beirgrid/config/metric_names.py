"""Names of metrics: ``name@k``, as the field writes them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core.errors import BeirgridError, nearest, quoted
from .values import MOST_SIZE

NAMES = (
    "ndcg",
    "ndcg_burges",
    "ndcg_judged",
    "recall",
    "recall_cap",
    "mrr",
    "map",
    "p",
    "success",
    "hole",
    "hole_corpus",
)
# What config.yaml asks for.
STANDARD = ("ndcg@10", "recall@100", "recall@1000", "mrr@10", "map@1000", "p@10")
# The metrics of which less is better.
LOWER_IS_BETTER = ("hole", "hole_corpus")


class Metric(NamedTuple):
    """A metric cut off at rank ``k``."""

    name: str
    k: int


def parse_metric(text: str) -> Metric:
    """Read ``name@k``; raise BeirgridError naming the nearest known metric if it is none."""
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]*)", text)
    if not match:
        base = text.split("@")[0].lower()
        hint = nearest(base, NAMES).replace("'?", "@k'?")
        raise BeirgridError(f"{text!r} is not a metric of the form name@k, such as ndcg@10{hint}")
    if match[1] not in NAMES:
        raise BeirgridError(f"there is no metric {match[1]!r}{nearest(match[1], NAMES)} (known: {', '.join(NAMES)})")
    if len(match[2]) > len(str(MOST_SIZE)) or int(match[2]) > MOST_SIZE:
        raise BeirgridError(f"{quoted(text)} looks deeper than any run ({MOST_SIZE:,} documents)")
    return Metric(match[1], int(match[2]))
