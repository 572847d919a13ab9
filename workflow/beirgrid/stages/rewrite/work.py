"""Stage rewrite: the texts with which a system searches in place of its queries, written by a model or by others."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

from ...collections import collection, rewriting
from ...collections.parts import join_parts, read_part
from ...config.models import Writer
from ...config.values import Seed, Size
from ...core import provenance
from ...core.compute import Compute
from ...core.errors import DataError, quantity, quoted, warn
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_model

# Queries of which the texts are kept together while a job runs.
BLOCK = 64


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
    # Answers are kept for good, and shared by datasets: no server is asked for a text again.
    writer = open_model(generator, model, compute.start(), output.parent / "answers")
    state = provenance.state_folder(output, precision=writer.precision)
    names = [*asked]
    parts = {state / f"{first}.parquet": names[first : first + BLOCK] for first in range(0, len(names), BLOCK)}
    known = [part for part, of_part in parts.items() if read_part(part, rewriting.SCHEMA, len(of_part))]
    # A server's client counts all requests, the kept ones too.
    missing = [part for part in parts if model.endpoint or part not in known]
    progress = Progress("rewrite", sum(len(parts[part]) for part in missing), "queries")
    started = time.monotonic()  # the model is open
    for part in missing:
        prompts = [prompt.replace("{query}", asked[query]) for query in parts[part]]
        written = writer.generate(prompts, per_text=texts, seed=seed, progress=progress)
        rewriting.write(part, dict(zip(parts[part], map(_filled, written), strict=True)))
    seconds = round(time.monotonic() - started, 3)
    join_parts(parts, output, rewriting.SCHEMA)
    shutil.rmtree(state)
    facts = {"queries": len(names), "queries_without_texts": _count_empty(output, queries)}
    # Of queries that an earlier attempt wrote for, the seconds are unknown.
    return {**writer.facts(), **facts, **({"query_seconds": seconds} if len(missing) == len(parts) else {})}


def _filled(texts: list[str]) -> list[str]:
    """Return the texts that are not blank, without the blanks around them."""
    return [text.strip() for text in texts if text.strip()]


def _count_empty(output: Path, queries: Path) -> int:
    """Count the queries without a text and warn of them; refuse texts of no query at all."""
    of_each = rewriting.read(output)
    empty = [query for query, of_query in of_each.items() if not of_query]
    if len(empty) == len(of_each):
        output.unlink()
        raise DataError(f"the generator writes nothing for any query of {queries}: check its prompt")
    if empty:
        count = f"{len(empty):,} of the {quantity(len(of_each), 'query')} of {queries}"
        warn(f"the generator writes nothing for {count} ({quoted(empty[0])}, say): these are searched as they are")
    return len(empty)
