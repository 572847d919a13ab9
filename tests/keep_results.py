"""Keep a small results folder of this release, which later releases must adopt: ``python tests/keep_results.py``.

It writes ``tests/data/results-VERSION.tar.gz`` anew. Run it in a release, after all versions of stages are set.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

import yaml
from helpers import write_collection
from small import finish

from beirgrid.core.checkout import __version__

KEPT = Path(__file__).parent / "data"
SETTINGS = {
    "corpora": {"c": {"source": "local", "path": "data"}},
    "datasets": {"c": {"corpus": "c"}},
    "systems": {
        "flat": {"retriever": "bm25", "fields": "flat"},
        "multi": {"retriever": "bm25", "fields": "multifield"},
        "fused": {"fusion": "rrf", "of": ["flat", "multi"]},
    },
    "grid": {"systems": ["flat", "fused"], "datasets": ["c"]},
    "metrics": ["ndcg@10"],
    "retrieve": {"depth": 10},
}


def keep(archive: Path) -> None:
    """Run a grid of BM25 and a fusion over ten documents, and pack its folder without Snakemake's own metadata."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = [{"_id": f"d{i}", "title": "", "text": f"word{i} common number{i % 3}"} for i in range(10)]
        queries = [{"_id": "q1", "text": "word1 common"}, {"_id": "q2", "text": "number2"}]
        write_collection(folder / "data", documents, queries, {"test": [("q1", "d1", 1), ("q2", "d2", 1)]})
        (folder / "grid.yaml").write_text(yaml.safe_dump(SETTINGS))
        finish(folder / "grid.yaml", folder)
        for left_out in (".snakemake", "logs", "results/benchmarks", "results/grids", "results/status.jsonl"):
            path = folder / left_out
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        with tarfile.open(archive, "w:gz") as packed:
            for path in sorted(folder.iterdir()):
                packed.add(path, path.name)


if __name__ == "__main__":
    keep(KEPT / f"results-{__version__}.tar.gz")
