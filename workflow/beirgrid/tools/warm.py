"""Compile what numba compiles once, at set-up, so that no job spends half a minute on it.

ranx's fusions and the search of impact postings are compiled on first use and kept beside their files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

from ..data.fusion import fuse
from ..data.runs import Ranking
from ..search import impact


def main() -> None:
    """Use every compiled function that the stages use, on a few documents."""
    ranking = Ranking(["a", "b"], np.array([2, 1], np.float32))
    fuse([{"q": ranking}, {"q": ranking}], "rrf", 10)
    for norm in ("min-max", "max", "sum", "zmuv", "rank", "borda"):
        fuse([{"q": ranking}, {"q": ranking}], "wsum", 10, norm=norm, weights=[0.5, 0.5])
    weights = scipy.sparse.csr_matrix(np.eye(2, dtype=np.float32))
    with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder:
        impact.write_index(weights, Path(folder))
        impact.search_shards([Path(folder)], weights, 1)


if __name__ == "__main__":
    main()
