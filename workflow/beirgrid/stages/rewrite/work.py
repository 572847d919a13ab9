"""Stage rewrite: the texts with which a system searches in place of its queries, written by a model or by others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from ...collections import collection, rewriting
from ...config.models import Writer
from ...config.values import Seed, Size
from ...core.compute import Compute
from ...core.errors import DataError, quoted, warn
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_model


def rewrite(
    *,
    queries: Annotated[Artifact, "queries.parquet"],
    path: Annotated[Path | None, "file .jsonl with the texts, in place of a generator"] = None,
    model: Writer | None = None,
    generator: Annotated[Artifact | None, "checkpoint of the model that writes them"] = None,
    prompt: Annotated[str, "what the model reads, with {query}"] = "",
    texts: Annotated[Size, "texts of each query"] = 1,
    seed: Annotated[Seed, "seed of the model"] = 0,
    compute: Compute,
    output: Annotated[Path, "rewrites to write (collections.rewriting)"],
) -> Facts:
    """Write texts for the queries of a dataset. A text depends on the seed and its query alone.

    Raises:
        DataError: an input is damaged, the file lacks a query, or the model writes nothing at all.
    """
    asked = collection.read_queries(queries)
    if not (generator and model):
        assert path, "a job has a generator or a path"
        rewriting.write(output, rewriting.read_lines(path, asked))
        return {"queries": len(asked), "query_seconds": 0.0, "source": path.name}
    # Kept for good, and shared by datasets: no server is asked for a text again.
    writer = open_model(generator, model, compute.start(), output.parent / "answers")
    started = time.monotonic()  # the model is open
    prompts = [prompt.replace("{query}", text) for text in asked.values()]
    written = writer.generate(prompts, per_text=texts, seed=seed, progress=Progress("rewrite", len(asked), "queries"))
    seconds = round(time.monotonic() - started, 3)
    of_each = {
        query: [text.strip() for text in of_query if text.strip()]
        for query, of_query in zip(asked, written, strict=True)
    }
    empty = [query for query, of_query in of_each.items() if not of_query]
    if len(empty) == len(of_each):
        raise DataError(f"the generator writes nothing for any query of {queries}: check its prompt")
    if empty:
        count = f"{len(empty):,} of the {len(of_each):,} queries of {queries}"
        warn(f"the generator writes nothing for {count} ({quoted(empty[0])}, say): these are searched as they are")
    rewriting.write(output, of_each)
    facts = {"queries": len(of_each), "queries_without_texts": len(empty), "query_seconds": seconds}
    return {**writer.facts(), **facts}
