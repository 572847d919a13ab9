"""Compile ranx's functions once, at set-up, so that no job spends half a minute on it.

ranx compiles with numba on first use and keeps the result beside its own files.
"""

from __future__ import annotations

import numpy as np

from .fuse import fuse
from .metrics import Metric, evaluate, known_metrics
from .runs import Ranking


def main() -> None:
    """Use every function of ranx that the stages use, on a few documents."""
    ranking = Ranking(["a", "b"], np.array([2, 1], np.float32))
    evaluate([Metric(name, 1) for name in known_metrics()], [{"a": 1}] * 10, [["a", "b"]] * 10)
    fuse([{"q": ranking}, {"q": ranking}], "rrf", 10)
    for norm in ("min-max", "max", "sum", "zmuv", "rank", "borda"):
        fuse([{"q": ranking}, {"q": ranking}], "wsum", 10, norm=norm, weights=[0.5, 0.5])


if __name__ == "__main__":
    main()
