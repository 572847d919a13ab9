"""Compile numba's functions at set-up, so that no job spends half a minute on them.

numba compiles the functions of ranx, the search of impact postings and exact scores on first use. It keeps the compiled
functions beside their files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import get_args

import numpy as np
import scipy.sparse

from ..config.values import Norm
from ..data.fusion import fuse
from ..data.runs import Ranking
from ..search import flat, impact


def main() -> None:
    """Use every compiled function that the stages use, on a few documents."""
    ranking = Ranking(["a", "b"], np.array([2, 1], np.float32))
    fuse([{"q": ranking}, {"q": ranking}], "rrf", 10)
    for norm in get_args(Norm):
        fuse([{"q": ranking}, {"q": ranking}], "wsum", 10, norm=norm, weights=[0.5, 0.5])
    flat.search_exact(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), 1)
    weights = scipy.sparse.csr_matrix(np.eye(2, dtype=np.float32))
    with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder:
        impact.write_index(weights, Path(folder))
        impact.search_shards([Path(folder)], weights, 1)


if __name__ == "__main__":
    main()
