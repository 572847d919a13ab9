"""Lucene in this process, for one query at a time: the commands' own Lucene starts a Java for all queries of a dataset.

A process can start one Java. It stays until the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import lucene


class LiveLucene:
    """A Lucene index that stays open."""

    def __init__(
        self, index: Path, *, fields: str, language: str = "en", k1: float = 0.9, b: float = 0.4, memory_mb: int = 1500
    ) -> None:
        """Open an index as ``flat`` or ``multifield``, as it was built."""
        autoclass = _java_classes(memory_mb)
        self.searcher = autoclass("io.anserini.search.SimpleSearcher")(str(index.absolute()))
        self.searcher.set_bm25(k1, b)
        self.searcher.set_language(language)
        self.weights = autoclass("java.util.HashMap")()
        if fields == "multifield":
            for field in ("contents", "title"):
                self.weights.put(field, autoclass("java.lang.Float")(1.0))

    def search(self, query: str, depth: int) -> tuple[list[str], list[float]]:
        """Return the ids and scores of the best documents, best first."""
        if self.weights.isEmpty():
            hits = self.searcher.search(query, depth)
        else:
            hits = self.searcher.search_fields(query, self.weights, depth)
        return [hit.docid for hit in hits], [hit.score for hit in hits]


def _java_classes(memory_mb: int) -> Any:
    """Start Java, if it has not been started, and return the function that gives a class by its name."""
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(Path(lucene.java()).parent.parent)
        jnius_config.set_classpath(str(lucene.jar()))
        jnius_config.set_options(f"-Xmx{memory_mb}m")
    from jnius import autoclass

    return autoclass
