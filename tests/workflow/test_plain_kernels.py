"""A grid with only documented functions of PyTorch, transformers and faiss has the same numbers, up to rounding."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small import ENCODE, finish

from beirgrid.runs import runs

# Systems of each kind of kernel: encoders of dense, sparse and token vectors, exact search, a cross-encoder.
MODELS = ("tiny", "sparse", "tiny-late", "bm25+ce")


@pytest.mark.slow
def test_plain_kernels_give_the_same_runs(finished, small_grid, tmp_path):
    grid = {"systems": ["bm25-flat", *MODELS], "datasets": ["small"], "baseline": "bm25-flat"}
    configfile = small_grid(tmp_path, kernels="plain", encode={**ENCODE, "shard": 40}, grid=grid)
    finish(configfile, tmp_path, *(f"results/runs/{system}/small.run.gz" for system in MODELS))
    for system in MODELS:
        found, expected = (runs.read(at / f"results/runs/{system}/small.run.gz") for at in (tmp_path, finished))
        assert found.keys() == expected.keys()
        for query, ranking in expected.items():
            scores = dict(zip(ranking.ids, ranking.scores, strict=True))
            plain = dict(zip(found[query].ids, found[query].scores, strict=True))
            assert len(plain.keys() & scores.keys()) >= 0.95 * len(scores)  # nearly equal scores at the end may swap
            both = sorted(plain.keys() & scores.keys())
            values = [np.array([of[document] for document in both]) for of in (plain, scores)]
            np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
    for folder, kernels in ((tmp_path, "plain"), (finished, "auto")):
        record = json.loads((folder / "results/embeddings/tiny-dense/small/0.json").read_text())
        assert record["facts"]["kernels"] == kernels
