"""Compile numba's functions at set-up, so that no job spends half a minute on them.

numba compiles the search of impact postings and exact scores on first use. It keeps the compiled functions beside their
files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

from ..search import flat, impact


def main() -> None:
    """Use every compiled function that the stages use, on a few documents."""
    flat.search_exact(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), 1)
    weights = scipy.sparse.csr_matrix(np.eye(2, dtype=np.float32))
    with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder:
        impact.write_index(weights, Path(folder))
        impact.search_shards([Path(folder)], weights, 1)


if __name__ == "__main__":
    main()
